// A custom backend over REST: an HTTP service with a path for each operation.

import { unescape } from 'node:querystring' // which throws for no escape
import { Readable } from 'node:stream'

import { Unavailable } from './backends.ts'
import { causeOf } from './causes.ts'
import type { Options } from './options.ts'
import type { Secrets } from './secrets.ts'
import { type Answer, checkEtag, type Condition, parse } from './transport.ts'
import { type Request, resolve, type RestApi, Transport, UNREADABLE } from './transport.ts'
import { readBody } from './wire.ts'

const ROUTES = {
  save_snapshot: ['POST', '/snapshots'],
  load_snapshot: ['GET', '/snapshots'],
  list_snapshot_ids: ['GET', '/snapshots/list'],
  delete_session: ['DELETE', '/sessions/'],
  save_manifest: ['POST', '/manifests'],
  load_manifest: ['GET', '/manifests'],
} as const

/** An HTTP service. Redirects are not followed: they would take the credentials along. */
export class RestTransport extends Transport {
  readonly #base: string
  readonly #basic: string
  readonly #credentials: RestApi['credentials']
  readonly #secrets: Secrets | null
  readonly #limit: number

  constructor(declared: RestApi, options: Options, secrets: Secrets | null) {
    const address = resolve(declared.base_url)
    const url = URL.canParse(address) ? new URL(address) : null
    if (!url || !/^https?:$/.test(url.protocol) || url.search || url.hash) {
      throw new Unavailable('base_url is no http:// or https:// address of a service', true)
    }
    super(declared, url.origin)
    this.#base = url.origin + url.pathname.replace(/\/+$/, '')
    const user = url.username + url.password && unescape(`${url.username}:${url.password}`)
    const isBasic = secrets && declared.credentials.scheme === 'none' && user
    this.#basic = isBasic ? `Basic ${Buffer.from(user).toString('base64')}` : ''
    this.#credentials = declared.credentials
    this.#secrets = secrets
    this.#limit = 8 * options.maxSnapshotBytes
  }

  protected async send(request: Request, condition: Condition, stop: AbortSignal): Promise<Answer> {
    const { operation, scope, ...plain } = request
    const [method, path] = ROUTES[operation]
    const headers = new Headers({ Accept: 'application/json', 'Accept-Encoding': 'identity' })
    if (condition.match) headers.set('If-Match', condition.match)
    if (condition.noneMatch) headers.set('If-None-Match', condition.noneMatch)
    for (const [name, value] of await this.#authorization()) headers.set(name, value)
    let [address, body]: [string, string | null] = [this.#base + path, null]
    if (method === 'POST') {
      headers.set('Content-Type', 'application/json')
      body = JSON.stringify(request)
    } else if (method === 'DELETE') {
      address += request.session_id // of characters that a path may hold
    } else {
      const query = new URLSearchParams()
      const flat = { ...plain, scope_type: scope?.type, scope_id: scope?.scope_id }
      for (const [name, value] of Object.entries(flat)) {
        if (value !== null) query.set(name, String(value))
      }
      address += `?${query}`
    }
    const sent = { method, headers, body, redirect: 'manual', signal: stop } as const
    const response = await fetch(address, sent)
    return judge(response, await readBody(response.body ?? Readable.from([]), this.#limit))
  }

  async #authorization(): Promise<[string, string][]> {
    const how = this.#credentials
    if (this.#basic) return [['Authorization', this.#basic]]
    if (!this.#secrets || how.scheme === 'none') return []
    const reference = how.source === 'env' ? `env:${how.name}` : (how.secret_id ?? '')
    const value = (await this.#secrets.get(reference, how.key, how.region)).trim()
    if (!/^[!-~]([ -~]*[!-~])?$/.test(value)) {
      throw new Unavailable('the credentials hold what no header can', true)
    }
    if (how.scheme === 'bearer-token') return [['Authorization', `Bearer ${value}`]]
    return [[how.header ?? '', value]]
  }
}

function judge({ status, ok, headers }: Response, body: Buffer): Answer {
  const [after, type] = [headers.get('Retry-After') ?? '', headers.get('Content-Type') ?? '']
  const retryAfter = /^[0-9]{1,6}$/.test(after) ? Number(after) * 1000 : 0
  const why = causeOf(null, status)
  if (!ok) return { status, retryAfter, ...(why && { failure: `${why} (HTTP ${status})` }) }
  const etag = checkEtag(headers.get('ETag'))
  try {
    return { status, value: parse(body), etag, raw: body }
  } catch {
    // Without a length it may be the connection that was cut, and not what is stored.
    const isWhole = headers.has('Content-Length') || headers.has('Transfer-Encoding')
    if (etag && body.length > 0 && isWhole && type.includes('json')) {
      return { status, value: UNREADABLE, etag, raw: body }
    }
    const what = body.length > 0 ? 'with a body that is no JSON' : 'without a body'
    throw new Unavailable(`HTTP ${status} ${what}`)
  }
}
