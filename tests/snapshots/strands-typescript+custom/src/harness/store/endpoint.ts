// Sessions at an endpoint of your own: the contract of six operations, over REST or Lambda.

import { isUtf8 } from 'node:buffer'
import { unescape } from 'node:querystring' // never throws, unlike decodeURIComponent
import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'

import pRetry from 'p-retry'
import { v7 as uuid7 } from 'uuid'

import type { Secrets } from '../collections/secrets.ts'
import {
  type LambdaTransport,
  resolve,
  type RestTransport as RestConfig,
  serviceUrl,
} from '../collections/session_backend.ts'
import { log } from '../log.ts'
import type { Stored } from '../sessions/session_store.ts'
import { Conflict, decode, type DurableStore, StoreUnavailable, Unsupported } from './base.ts'
import { unavailable, UUID7, type Warning, withinSeconds } from './base.ts'

const LATEST = 'latest'
const ETAG = /^(?!\*$)[!-~]{1,256}$/
const [PAGE, MAX_PAGES] = [1000, 100]
/** The fields that the specification shows; an endpoint may drop all others. */
const FIELDS = ['schema_version', 'created_at']
const DATA_FIELDS = ['messages', 'state', 'system_prompt']
/** The key in `data.state` of what has no field in the specification. No agent has such a key. */
const RECORD = '_agent_template_session'
const NOT_MARKED = 'the endpoint did not store the mark of a quarantined snapshot in `data.state`'
/** The value of a stored snapshot that is not JSON. */
const UNREADABLE = Symbol('unreadable')

type Fields = Record<string, unknown>
type Operation =
  `${'save' | 'load'}_${'snapshot' | 'manifest'}` | 'list_snapshot_ids' | 'delete_session'

/** The payload of an operation. */
export interface Request extends Fields {
  operation: Operation
  session_id: string
  scope?: { type: string; scope_id: string }
}

/** The conditions that HTTP calls If-Match and If-None-Match. */
export interface Condition {
  match?: string | null | undefined
  noneMatch?: string | null | undefined
}

/** The answer to an operation; over Lambda too it has the status that HTTP would have. */
export interface Answer {
  status: number
  value?: unknown
  etag?: string | null
  raw?: Buffer
  /** Milliseconds. */
  retryAfter?: number
  /** Why this is not an answer of the endpoint itself. */
  failure?: string
}

/** The way to an endpoint. */
export interface Transport {
  /** What it connects to, without secrets. */
  readonly contact: string
  send(request: Request, condition: Condition, stop: AbortSignal): Promise<Answer>
  close(): void
}

/** The sessions of one agent at an endpoint, whose ETags are the revisions. */
export class EndpointStore implements DurableStore {
  readonly contact: string
  readonly #client: EndpointClient
  readonly #agent: string
  readonly #quarantine: string
  #hasEtags = true
  #isWarned = false

  constructor(client: EndpointClient, agentId: string) {
    this.contact = client.contact
    this.#client = client
    this.#agent = agentId
    this.#quarantine = `${agentId}.set-aside` // not the scope of an agent: their ids have no dot
  }

  async load(sessionId: string, known: Stored | null = null): Promise<Stored | null> {
    const [client, agent] = [this.#client, this.#agent]
    const answer = await client.loadSnapshot(sessionId, agent, LATEST, known?.revision)
    const { status, value, etag = null } = answer
    if (status === 304) return known
    if (value === null) return null
    this.#noteEtag(etag)
    if (isMarker(value)) return null
    if (value === UNREADABLE) return { revision: etag, snapshot: decode(answer.raw ?? Buffer.of()) }
    const manifest = known ? null : await client.loadManifest(sessionId, agent)
    return { revision: etag, snapshot: fromWire(value as Fields, manifest) }
  }

  async save(
    sessionId: string,
    snapshot: string,
    expected: string | null,
    checkpoint: string | null = null,
  ): Promise<string | null> {
    const wire = toWire(snapshot)
    let revision
    try {
      revision = await this.#replace(sessionId, wire, expected)
    } catch (error) {
      if (!(error instanceof Conflict) || expected !== null) throw error
      const { value, etag } = await this.#client.loadSnapshot(sessionId, this.#agent, LATEST)
      if (!etag || !isMarker(value)) throw error
      revision = await this.#replace(sessionId, wire, etag)
    }
    await this.#client.saveManifest(sessionId, this.#agent).catch((error: Error) => {
      log('WARNING', `session ${sessionId}: no manifest: ${error.message}`)
    })
    if (checkpoint) await this.saveCheckpoint(sessionId, snapshot, checkpoint)
    return revision
  }

  async saveCheckpoint(sessionId: string, snapshot: string, checkpoint: string): Promise<void> {
    const saved = this.#client.saveSnapshot(sessionId, this.#agent, checkpoint, toWire(snapshot))
    await saved.catch((error: Error) => {
      log('WARNING', `session ${sessionId}: no checkpoint: ${error.message || 'conflict'}`)
    })
  }

  async loadCheckpoint(sessionId: string, checkpoint: string): Promise<string | null> {
    const answer = await this.#client.loadSnapshot(sessionId, this.#agent, checkpoint)
    if (answer.value === null) return null
    return answer.value === UNREADABLE ? '' : fromWire(answer.value as Fields, null)
  }

  async checkpoints(sessionId: string): Promise<string[]> {
    return await this.#client.listSnapshotIds(sessionId, this.#agent)
  }

  async quarantine(sessionId: string, revision: string | null): Promise<string> {
    const answer = await this.#client.loadSnapshot(sessionId, this.#agent, LATEST)
    const { value, etag = null, raw = Buffer.of() } = answer
    if (value === null || etag !== revision) throw new Conflict()
    const state = isUtf8(raw)
      ? { set_aside: raw.toString() }
      : { set_aside_base64: raw.toString('base64') }
    const name = await this.#setAside(sessionId, state)
    const mark = await this.#replace(sessionId, marker(name), revision)
    const found = await this.#client.loadSnapshot(sessionId, this.#agent, LATEST)
    // With another ETag it is a session that another process began in between.
    const isNew = mark !== null && ![null, mark, revision].includes(found.etag ?? null)
    if (found.value !== null && !isMarker(found.value) && !isNew)
      throw new StoreUnavailable(NOT_MARKED)
    return name
  }

  async quarantined(sessionId: string): Promise<string[]> {
    return await this.#client.listSnapshotIds(sessionId, this.#quarantine)
  }

  async end(sessionId: string): Promise<void> {
    await this.#client.deleteSession(sessionId)
  }

  async sessions(): Promise<string[]> {
    throw new Unsupported('The contract of a custom backend has no operation that lists sessions.')
  }

  async warnings(): Promise<Warning[]> {
    return []
  }

  async close(): Promise<void> {
    this.#client.close()
  }

  /** Store what is quarantined, unless the last attempt did, and return its name. */
  async #setAside(sessionId: string, state: Fields): Promise<string> {
    const last = (await this.quarantined(sessionId)).at(-1)
    if (last) {
      const { value } = await this.#client.loadSnapshot(sessionId, this.#quarantine, last)
      if (isDeepStrictEqual(stateOf(value), state)) return last
    }
    const name = uuid7()
    const kept = withoutMessages({ state })
    await this.#client.saveSnapshot(sessionId, this.#quarantine, name, kept)
    return name
  }

  async #replace(sessionId: string, wire: object, match: string | null): Promise<string | null> {
    // Without ETags there is nothing to compare: the condition would fail for ever.
    const condition = { match, noneMatch: match === null && this.#hasEtags ? '*' : null }
    return await this.#client.saveSnapshot(sessionId, this.#agent, LATEST, wire, condition)
  }

  #noteEtag(etag: string | null): void {
    this.#hasEtags = etag !== null
    if (etag !== null || this.#isWarned) return
    this.#isWarned = true
    log('WARNING', `${this.contact} sends no ETag: if two processes save, the last one wins`)
  }
}

/**
 * A snapshot as the contract has it, with all that its `data` must have.
 *
 * What the specification does not show is in `data.state` too. Earlier releases read it where it
 * was, and so does this one if the endpoint keeps it there.
 */
function toWire(snapshot: string): Fields {
  const value = JSON.parse(snapshot)
  const { data, ...others } = value
  const record = { ...without(others, FIELDS), data: without(data, DATA_FIELDS) }
  const state = { ...data.state, [RECORD]: record }
  return { ...value, data: { ...data, state, system_prompt: data.system_prompt ?? null } }
}

/**
 * A snapshot as it was committed. A foreign version in the manifest is that of the snapshot.
 *
 * The snapshot of another runtime, which is of version "1", may have no `app_data`.
 */
function fromWire(given: Fields, manifest: Fields | null): string {
  const app_data = { actor: null, turn: 1, key: null, reply: '' }
  const restored = isObject(given.data) ? withRecord(given, given.data) : given
  const value: Fields = { ...(given.schema_version === '1' && { app_data }), ...restored }
  const version = manifest ? manifest.schema_version : '1.0'
  if (version !== '1' && version !== '1.0') value.schema_version = `${version} in its manifest`
  try {
    return JSON.stringify(value)
  } catch {
    return '' // it is nested too deeply
  }
}

/** A snapshot with what `toWire` put into its state, if the endpoint dropped that. */
function withRecord(given: Fields, stored: Fields): Fields {
  const data = without(stored, ['system_prompt']) // the prompt of the code applies
  const record = recordIn(given)
  if (record === null) return { ...given, data }
  data.state = without(stateOf(given), [RECORD])
  const isOlder = hasFields(given.app_data) && !isDeepStrictEqual(given.app_data, record.app_data)
  if (isOlder) return { ...given, data } // an earlier release saved it
  const present = Object.entries(given).filter(([, value]) => value !== null)
  const others = isObject(record.data) ? record.data : {}
  return { ...record, ...Object.fromEntries(present), data: { ...others, ...data } }
}

function recordIn(value: unknown): Fields | null {
  const record = stateOf(value)[RECORD]
  return isObject(record) ? record : null
}

/** The `data.state` of a snapshot. */
function stateOf(value: unknown): Fields {
  const data = isObject(value) ? value.data : null
  return isObject(data) && isObject(data.state) ? data.state : {}
}

/** The snapshot that takes the place of a quarantined one. */
function marker(name: string): Fields {
  const app_data = { set_aside: name } // where earlier releases look for it
  return { ...withoutMessages({ state: { [RECORD]: { app_data } } }), app_data }
}

function withoutMessages(fields: Fields): Fields {
  const data = { messages: [], system_prompt: null, ...fields }
  return { data, schema_version: '1.0', created_at: now(), scope: 'agent' }
}

/** Whether a snapshot is a marker, or has nothing at all in its data. */
function isMarker(value: unknown): boolean {
  if (!isObject(value) || !isObject(value.data)) return false
  const { app_data } = hasFields(value.app_data) ? value : (recordIn(value) ?? {})
  if (app_data) return isObject(app_data) && 'set_aside' in app_data
  return !Object.values(value.data).some(hasFields)
}

/** Whether a value is neither null nor empty. */
function hasFields(value: unknown): boolean {
  return Boolean(typeof value === 'object' && value ? Object.keys(value).length > 0 : value)
}

function without(fields: Fields, names: string[]): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([name]) => !names.includes(name)))
}

function isObject(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function now(): string {
  return `${new Date().toISOString().slice(0, 19)}Z`
}

/** An attempt that may be repeated. */
class Failed extends Error {
  readonly retryAfter: number

  constructor(retryAfter: number, options: ErrorOptions) {
    super('', options)
    this.retryAfter = retryAfter
  }
}

/** The six operations, with retries. Each throws StoreUnavailable for an unexpected answer. */
export class EndpointClient {
  readonly contact: string
  readonly #transport: Transport
  readonly #declared: RestConfig | LambdaTransport

  constructor(transport: Transport, declared: RestConfig | LambdaTransport) {
    this.contact = transport.contact
    this.#transport = transport
    this.#declared = declared
  }

  /** Save the latest snapshot or, by a UUIDv7, a checkpoint; its ETag. Throws Conflict. */
  async saveSnapshot(
    sessionId: string,
    scopeId: string,
    snapshotId: string,
    snapshot: object,
    condition: Condition = {},
  ): Promise<string | null> {
    const isLatest = snapshotId === LATEST
    const which = { snapshot_id: snapshotId, is_latest: isLatest }
    const asked = { ...request('save_snapshot', sessionId, scopeId), ...which, snapshot }
    const answer = await this.#call(asked, condition)
    if (answer.status === 412) throw new Conflict()
    // A checkpoint that is there was saved by an earlier attempt.
    if (isLatest || answer.status !== 409) this.#expectOk(asked, answer)
    return answer.etag ?? null
  }

  /** Load a snapshot: an object, UNREADABLE or null; status 304 where it still has that ETag. */
  async loadSnapshot(
    sessionId: string,
    scopeId: string,
    snapshotId: string,
    noneMatch?: string | null,
  ): Promise<Answer> {
    const asked = { ...request('load_snapshot', sessionId, scopeId), snapshot_id: snapshotId }
    const answer = await this.#call(asked, { noneMatch })
    return answer.status === 304 && noneMatch ? answer : this.#expectObject(asked, answer)
  }

  /** List the ids of all checkpoints, ascending. */
  async listSnapshotIds(sessionId: string, scopeId: string): Promise<string[]> {
    const all: string[] = []
    for (let page = 0; page < MAX_PAGES; page++) {
      const last = all.at(-1) ?? null
      const range = { limit: PAGE, start_after: last }
      const asked = { ...request('list_snapshot_ids', sessionId, scopeId), ...range }
      const answer = await this.#call(asked)
      if (answer.status === 404) break
      const { snapshot_ids: ids } = (answer.value ?? {}) as { snapshot_ids?: unknown }
      const isValid = Array.isArray(ids) && ids.every((one) => UUID7.test(one))
      if (!isValid || ids.some((one, at) => at > 0 && one < ids[at - 1])) {
        throw this.#unexpected(asked, answer, '{"snapshot_ids": [UUIDv7, ascending]}')
      }
      if (!ids[0] || (last && ids[0] <= last)) break // the latter ignores start_after
      all.push(...ids)
    }
    return all
  }

  /** Delete all of a session, known or not. */
  async deleteSession(sessionId: string): Promise<void> {
    const asked: Request = { operation: 'delete_session', session_id: sessionId }
    const answer = await this.#call(asked)
    if (answer.status !== 404) this.#expectOk(asked, answer)
  }

  /** Save the manifest: the schema of the snapshots, and when the latest was committed. */
  async saveManifest(sessionId: string, scopeId: string): Promise<void> {
    const manifest = { schema_version: '1.0', updated_at: now() }
    const asked = { ...request('save_manifest', sessionId, scopeId), manifest }
    this.#expectOk(asked, await this.#call(asked))
  }

  /** Load the manifest, or null. */
  async loadManifest(sessionId: string, scopeId: string): Promise<Fields | null> {
    const asked = request('load_manifest', sessionId, scopeId)
    const { value } = this.#expectObject(asked, await this.#call(asked))
    return value === UNREADABLE ? {} : (value as Fields | null)
  }

  close(): void {
    this.#transport.close()
  }

  /**
   * Send an operation; return an answer with status 2xx, 304, 404, 409 or 412.
   *
   * All attempts together take at most max_attempts x timeout_ms. Throws StoreUnavailable.
   */
  async #call(request: Request, condition: Condition = {}): Promise<Answer> {
    const { timeout_ms: time, retry_policy: policy } = this.#declared
    const what = `${request.operation} of ${this.contact}`
    const end = performance.now() + policy.max_attempts * time
    let indeterminate = false // of any attempt
    const attempt = async () => {
      const seconds = Math.min(time, end - performance.now()) / 1000
      const send = (stop: AbortSignal) => this.#transport.send(request, condition, stop)
      let answer
      try {
        answer = await withinSeconds(seconds, send)
      } catch (error) {
        const cause = unavailable(what, error)
        indeterminate ||= cause.indeterminate
        throw new Failed(0, { cause })
      }
      const { status, retryAfter = 0, failure = `HTTP ${status}` } = answer
      const isExpected = (status >= 200 && status < 300) || [304, 404, 409, 412].includes(status)
      const isRetried = policy.on_status.includes(status)
      if (isExpected && !answer.failure) return answer // whatever on_status lists
      indeterminate ||= status < 400 || status >= 500
      const cause = new StoreUnavailable(`${what}: ${failure}`)
      throw isRetried ? new Failed(retryAfter, { cause }) : cause
    }
    try {
      return await pRetry(attempt, {
        retries: policy.max_attempts - 1,
        minTimeout: policy.backoff_ms / 2,
        randomize: true, // once to twice as long
        maxRetryTime: policy.max_attempts * time,
        shouldRetry: async ({ error, retryDelay }) => {
          const pause = error instanceof Failed ? error.retryAfter - retryDelay : 0
          if (performance.now() + retryDelay + Math.max(pause, 0) >= end) return false
          if (pause > 0) await sleep(pause)
          return error instanceof Failed
        },
      })
    } catch (error) {
      const { message } = (error instanceof Failed ? error.cause : error) as Error
      throw new StoreUnavailable(message, { indeterminate })
    }
  }

  #expectOk(asked: Request, answer: Answer): void {
    const { ok } = (answer.value ?? {}) as { ok?: unknown }
    if (ok !== true) throw this.#unexpected(asked, answer, '{"ok": true}')
  }

  #expectObject(asked: Request, answer: Answer): Answer {
    if (answer.status === 404) return { ...answer, value: null }
    const { status, value } = answer
    const isValid = value === null || value === UNREADABLE || isObject(value)
    if (status >= 300 || !isValid) throw this.#unexpected(asked, answer, 'an object or null')
    return answer
  }

  #unexpected(asked: Request, { status }: Answer, wanted: string): StoreUnavailable {
    const what = `${asked.operation} of ${this.contact}: HTTP ${status}, expected ${wanted}`
    return new StoreUnavailable(what, { indeterminate: status < 400 || status >= 500 })
  }
}

function request(operation: Operation, sessionId: string, scopeId: string): Request {
  return { operation, session_id: sessionId, scope: { type: 'agent', scope_id: scopeId } }
}

const ROUTES = {
  save_snapshot: ['POST', '/snapshots'],
  load_snapshot: ['GET', '/snapshots'],
  list_snapshot_ids: ['GET', '/snapshots/list'],
  delete_session: ['DELETE', '/sessions/'],
  save_manifest: ['POST', '/manifests'],
  load_manifest: ['GET', '/manifests'],
} as const

/** An HTTP service. Redirects are not followed: they would take the credentials along. */
export class RestTransport implements Transport {
  readonly contact: string
  readonly #declared: RestConfig
  readonly #url: URL | null
  readonly #maxBytes: number
  readonly #secrets: Secrets

  constructor(declared: RestConfig, maxBytes: number, secrets: Secrets) {
    this.#url = serviceUrl(resolve(declared.base_url))
    this.contact = this.#url?.origin ?? `the address ${declared.base_url}`
    this.#declared = declared
    this.#maxBytes = maxBytes
    this.#secrets = secrets
  }

  async send(request: Request, condition: Condition, stop: AbortSignal): Promise<Answer> {
    const { operation, scope, ...plain } = request
    const [method, path] = ROUTES[operation]
    const headers = new Headers({ Accept: 'application/json', 'Accept-Encoding': 'identity' })
    if (condition.match) headers.set('If-Match', condition.match)
    if (condition.noneMatch) headers.set('If-None-Match', condition.noneMatch)
    if (!this.#url) {
      const what = 'this is not an http:// or https:// address of a service'
      throw new StoreUnavailable(what, { indeterminate: false })
    }
    await this.#authorize(headers, this.#url)
    const mayBeRotated = this.#declared.credentials.source === 'aws_secrets_manager'
    let address = this.#url.origin + this.#url.pathname.replace(/\/+$/, '') + path
    let body: string | null = null
    if (method === 'POST') {
      headers.set('Content-Type', 'application/json')
      body = JSON.stringify(request)
    } else if (method === 'DELETE') {
      address += request.session_id // its characters are all allowed in a path
    } else {
      const query = new URLSearchParams()
      const flat = { ...plain, scope_type: scope?.type, scope_id: scope?.scope_id }
      for (const [name, value] of Object.entries(flat)) {
        if (value !== null) query.set(name, String(value))
      }
      address += `?${query}`
    }
    const sent = { method, headers, body, redirect: 'manual', signal: stop } as const
    let response = await fetch(address, sent)
    if (mayBeRotated && [401, 403].includes(response.status)) {
      await response.body?.cancel()
      await this.#authorize(headers, this.#url, true)
      response = await fetch(address, sent)
    }
    return judge(response, await readBody(response.body ?? Readable.from([]), this.#maxBytes))
  }

  close(): void {}

  async #authorize(headers: Headers, url: URL, wasRefused = false): Promise<void> {
    const { scheme, source, name, secret_id: id = '', ...how } = this.#declared.credentials
    if (scheme === 'none') {
      const { username, password } = url
      const user = username + password && unescape(`${username}:${password}`)
      if (user) headers.set('Authorization', `Basic ${Buffer.from(user).toString('base64')}`)
      return
    }
    const { key = null, region = null, header = 'Authorization' } = how
    const reference = source === 'env' ? `env:${name}` : id
    const value = (await this.#secrets.get({ reference, key, region }, wasRefused)).trim()
    if (!/^[!-~]([ -~]*[!-~])?$/.test(value)) {
      const what = 'the credentials have characters that no header can have'
      throw new StoreUnavailable(what, { indeterminate: false })
    }
    headers.set(header, scheme === 'bearer-token' ? `Bearer ${value}` : value)
  }
}

function judge({ status, ok, headers }: Response, raw: Buffer): Answer {
  const [after, type] = [headers.get('Retry-After') ?? '', headers.get('Content-Type') ?? '']
  if (!ok) return { status, retryAfter: /^[0-9]{1,6}$/.test(after) ? Number(after) * 1000 : 0 }
  const etag = checkEtag(headers.get('ETag'))
  try {
    return { status, value: parse(raw), etag, raw }
  } catch {
    // Without a length it may be the connection that was cut, and not what is stored.
    const isWhole = headers.has('Content-Length') || headers.has('Transfer-Encoding')
    if (etag && raw.length > 0 && isWhole && type.includes('json')) {
      return { status, value: UNREADABLE, etag, raw }
    }
    throw new StoreUnavailable(`HTTP ${status}, but the body is not JSON`)
  }
}

/** Return the value of a JSON text in UTF-8, or throw. */
export function parse(body: Uint8Array): unknown {
  return JSON.parse(decode(body))
}

/** Return an ETag that can be sent back, or null. Throws StoreUnavailable. */
export function checkEtag(etag: unknown): string | null {
  if (etag === null || etag === undefined || etag === '') return null
  if (typeof etag === 'string' && ETAG.test(etag)) return etag
  throw new StoreUnavailable('the ETag must have 1 to 256 visible characters, and not be *')
}

/** Return all of a body. Throws StoreUnavailable where it is longer than allowed. */
export async function readBody(body: AsyncIterable<Uint8Array>, maxBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of body) {
    chunks.push(chunk)
    size += chunk.length
    if (size > maxBytes) throw new StoreUnavailable(`the answer is longer than ${maxBytes} bytes`)
  }
  return Buffer.concat(chunks)
}
