// Sessions at your own endpoint: the `custom` backend of the memory-collection specification.
//
// The endpoint implements six operations, over REST or as a Lambda function. If it sends ETags,
// saves are conditional: `If-Match` with the ETag of the last load, or `If-None-Match: *`. The
// endpoint rejects a conflicting save with 412. tests/harness/reference_endpoint.ts is a complete
// example.

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
import { type Data, findTurns } from '../sessions/sessions.ts'
import { Conflict, decode, type DurableStore, type Files, NO_FILES } from './base.ts'
import { segmentOf, StoreUnavailable, type StoreWarning, unavailable } from './base.ts'
import { Unsupported, UUID7, withinSeconds } from './base.ts'

const LATEST = 'latest'
const LAST_WINS = 'when two processes continue a session, the last save wins'
const ETAG = /^(?!\*$)[!-~]{1,256}$/
const PAGE = 1000
const MAX_PAGES = 100
/** The specification documents these fields; an endpoint may drop all other fields. */
const FIELDS = ['schema_version', 'created_at']
const DATA_FIELDS = ['messages', 'state', 'system_prompt']
/** The key in `data.state` for undocumented fields. No agent uses this key. */
const RECORD = '_agent_template_session'
const FILE = 'file_base64' // the key in `data.state` of a file's snapshot
const NOT_MARKED = 'the endpoint did not store the marker of a quarantined snapshot in `data.state`'
/** Represents a stored snapshot that is not JSON. */
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

/** The values of If-Match and If-None-Match. */
export interface Condition {
  match?: string | null | undefined
  noneMatch?: string | null | undefined
}

/** The answer to an operation, with an HTTP status even over Lambda. */
export interface Answer {
  status: number
  value?: unknown
  etag?: string | null
  raw?: Buffer
  /** The time to the next attempt, in milliseconds. */
  retryAfter?: number
  /** The reason for an error that is not the endpoint's own. */
  failure?: string
}

/** Sends requests to an endpoint. */
export interface Transport {
  /** The address of the endpoint, without secrets. */
  readonly contact: string
  send(request: Request, condition: Condition, stop: AbortSignal): Promise<Answer>
  close(): void
}

/**
 * A DurableStore of the agent's snapshots at an endpoint; ETags are the revisions.
 *
 * A quarantined snapshot moves to the scope `<agent_id>.set-aside`; agent ids have no dot. A marker
 * replaces it as the latest snapshot. A file is the latest snapshot of the scope
 * `<agent_id>.file-<name>`, in base64 in its state. The contract cannot delete a single snapshot:
 * an empty snapshot replaces a file that no turn refers to.
 */
export class EndpointStore implements DurableStore {
  readonly contact: string
  readonly #client: EndpointClient
  readonly #agent: string
  readonly #quarantineScope: string
  #hasEtags = true
  #hasWarned = false

  constructor(client: EndpointClient, agentId: string) {
    this.contact = client.contact
    this.#client = client
    this.#agent = agentId
    this.#quarantineScope = `${agentId}.set-aside`
  }

  async load(sessionId: string, known: Stored | null = null): Promise<Stored | null> {
    const client = this.#client
    const agent = this.#agent
    const answer = await client.loadSnapshot(sessionId, agent, LATEST, known?.revision)
    const { status, value, etag = null } = answer
    if (status === 304) return known
    if (value === null) return null
    this.#checkEtag(etag)
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
    files: Files = NO_FILES,
  ): Promise<string | null> {
    for (const [name, content] of files) await this.#saveFile(sessionId, name, content)
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
      log('WARNING', `session ${sessionId}: the manifest was not saved: ${error.message}`)
    })
    if (checkpoint) await this.saveCheckpoint(sessionId, snapshot, checkpoint)
    return revision
  }

  async saveCheckpoint(sessionId: string, snapshot: string, checkpoint: string): Promise<void> {
    const saved = this.#client.saveSnapshot(sessionId, this.#agent, checkpoint, toWire(snapshot))
    await saved.catch((error: Error) => {
      log(
        'WARNING',
        `session ${sessionId}: the checkpoint was not saved: ${error.message || 'a conflict'}`,
      )
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

  async loadFiles(sessionId: string, names: readonly string[]): Promise<Files> {
    const files = new Map<string, Uint8Array>()
    const load = async (name: string) => {
      const { value } = await this.#client.loadSnapshot(sessionId, this.#scopeOf(name), LATEST)
      const { [FILE]: text } = stateOf(value)
      if (typeof text !== 'string') return
      const content = Buffer.from(text, 'base64')
      const isDamaged = content.toString('base64') !== text
      if (!isDamaged) files.set(name, content) // a damaged file counts as lost
    }
    await Promise.all(names.map(load))
    return files
  }

  async trimFiles(sessionId: string, dropped: readonly string[] = []): Promise<void> {
    try {
      if (dropped.length === 0) return
      if ((await this.checkpoints(sessionId)).length > 0) return // which may refer to the files
      const latest = await this.#client.loadSnapshot(sessionId, this.#agent, LATEST)
      const { value, raw = Buffer.of() } = latest
      const unused = dropped.filter((name) => value !== null && !raw.includes(name))
      for (const name of unused) await this.#saveFile(sessionId, name, Buffer.of())
    } catch (error) {
      if (!(error instanceof Conflict || error instanceof StoreUnavailable)) throw error
      log('WARNING', `session ${sessionId}: old files were not deleted: ${error.message}`)
    }
  }

  async quarantine(sessionId: string, revision: string | null): Promise<string> {
    const answer = await this.#client.loadSnapshot(sessionId, this.#agent, LATEST)
    const { value, etag = null, raw = Buffer.of() } = answer
    if (value === null || etag !== revision) throw new Conflict()
    const state = isUtf8(raw)
      ? { set_aside: raw.toString() }
      : { set_aside_base64: raw.toString('base64') }
    const name = await this.#saveQuarantined(sessionId, state)
    const markerEtag = await this.#replace(sessionId, marker(name), revision)
    const latest = await this.#client.loadSnapshot(sessionId, this.#agent, LATEST)
    // Another ETag belongs to a new session that another process has started.
    const isNew = markerEtag !== null && ![null, markerEtag, revision].includes(latest.etag ?? null)
    if (latest.value !== null && !isMarker(latest.value) && !isNew)
      throw new StoreUnavailable(NOT_MARKED)
    return name
  }

  async quarantined(sessionId: string): Promise<string[]> {
    return await this.#client.listSnapshotIds(sessionId, this.#quarantineScope)
  }

  async end(sessionId: string): Promise<void> {
    await this.#client.deleteSession(sessionId)
  }

  async sessions(): Promise<string[]> {
    throw new Unsupported('The contract of a custom backend has no operation that lists sessions.')
  }

  leftovers(): [] {
    return []
  }

  async warnings(): Promise<StoreWarning[]> {
    return []
  }

  async close(): Promise<void> {
    this.#client.close()
  }

  #scopeOf(name: string): string {
    return `${this.#agent}.file-${name}`
  }

  async #saveFile(sessionId: string, name: string, content: Uint8Array): Promise<void> {
    const text = Buffer.from(content).toString('base64')
    const snapshot = withoutMessages({ state: text ? { [FILE]: text } : {} })
    await this.#client.saveSnapshot(sessionId, this.#scopeOf(name), LATEST, snapshot)
  }

  /** Save a quarantined snapshot, unless an earlier attempt saved it; return its name. */
  async #saveQuarantined(sessionId: string, state: Fields): Promise<string> {
    const last = (await this.quarantined(sessionId)).at(-1)
    if (last) {
      const { value } = await this.#client.loadSnapshot(sessionId, this.#quarantineScope, last)
      if (isDeepStrictEqual(stateOf(value), state)) return last
    }
    const name = uuid7()
    const snapshot = withoutMessages({ state })
    await this.#client.saveSnapshot(sessionId, this.#quarantineScope, name, snapshot)
    return name
  }

  async #replace(sessionId: string, wire: object, match: string | null): Promise<string | null> {
    // Without ETags the condition would always fail.
    const condition = { match, noneMatch: match === null && this.#hasEtags ? '*' : null }
    return await this.#client.saveSnapshot(sessionId, this.#agent, LATEST, wire, condition)
  }

  #checkEtag(etag: string | null): void {
    this.#hasEtags = etag !== null
    if (etag !== null || this.#hasWarned) return
    this.#hasWarned = true
    log('WARNING', `${this.contact} sends no ETag: ${LAST_WINS}`)
  }
}

/**
 * Return a committed snapshot in the form of the contract.
 *
 * Undocumented fields are also copied into `data.state`, because an endpoint may drop them. Earlier
 * releases read them only from their original place.
 */
function toWire(snapshot: string): Fields {
  const value = JSON.parse(snapshot)
  const { data, ...others } = value
  const record = { ...without(others, FIELDS), data: without(data, DATA_FIELDS) }
  const state = { ...data.state, [RECORD]: record }
  return { ...value, data: { ...data, state, system_prompt: data.system_prompt ?? null } }
}

/**
 * Return the committed snapshot; an unknown version in the manifest applies to the snapshot.
 *
 * Snapshots of other runtimes have version "1" and may lack `app_data`.
 */
function fromWire(snapshot: Fields, manifest: Fields | null): string {
  const restored = isObject(snapshot.data) ? withRecord(snapshot, snapshot.data) : snapshot
  const isForeign = snapshot.schema_version === '1'
  const value: Fields = { ...(isForeign && { app_data: defaultAppData(snapshot) }), ...restored }
  const version = manifest ? manifest.schema_version : '1.0'
  if (version !== '1' && version !== '1.0') value.schema_version = `${version} in its manifest`
  try {
    return JSON.stringify(value)
  } catch {
    return '' // the value is nested too deeply
  }
}

/** Return the `app_data` of another runtime, which does not count turns or name an actor. */
function defaultAppData({ data }: Fields): Fields {
  let turn = 1
  try {
    turn = Math.max(turn, findTurns(data as Data).length)
  } catch {} // the snapshot may be invalid
  return { actor: null, turn, key: null, reply: '', ownerless: true }
}

/** Restore the fields that `toWire` copied into the state, if the endpoint dropped them. */
function withRecord(snapshot: Fields, stored: Fields): Fields {
  const data = without(stored, ['system_prompt']) // the agent's code provides the prompt
  const record = recordIn(snapshot)
  if (record === null) return { ...snapshot, data }
  data.state = without(stateOf(snapshot), [RECORD])
  const { app_data } = snapshot
  const isOlder = hasFields(app_data) && !isDeepStrictEqual(app_data, record.app_data)
  if (isOlder) return { ...snapshot, data } // an earlier release saved the snapshot
  const present = Object.entries(snapshot).filter(([, value]) => value !== null)
  const others = isObject(record.data) ? record.data : {}
  return { ...record, ...Object.fromEntries(present), data: { ...others, ...data } }
}

function recordIn(value: unknown): Fields | null {
  const record = stateOf(value)[RECORD]
  return isObject(record) ? record : null
}

/** Return the `data.state` of a snapshot. */
function stateOf(value: unknown): Fields {
  const data = isObject(value) ? value.data : null
  return isObject(data) && isObject(data.state) ? data.state : {}
}

/** Return a snapshot that replaces a quarantined snapshot. */
function marker(name: string): Fields {
  const app_data = { set_aside: name } // the place that earlier releases read
  return { ...withoutMessages({ state: { [RECORD]: { app_data } } }), app_data }
}

function withoutMessages(fields: Fields): Fields {
  const data = { messages: [], system_prompt: null, ...fields }
  return { data, schema_version: '1.0', created_at: now(), scope: 'agent' }
}

/** Return whether a snapshot is a marker, or its data is empty. */
function isMarker(value: unknown): boolean {
  if (!isObject(value) || !isObject(value.data)) return false
  const { app_data } = hasFields(value.app_data) ? value : (recordIn(value) ?? {})
  if (app_data) return isObject(app_data) && 'set_aside' in app_data
  return !Object.values(value.data).some(hasFields)
}

/** Return whether a value is neither null nor empty. */
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

/** A failed attempt that the retry policy allows to repeat. */
class AttemptError extends Error {
  readonly retryAfter: number

  constructor(retryAfter: number, options: ErrorOptions) {
    super('', options)
    this.retryAfter = retryAfter
  }
}

/**
 * The six operations of the contract, with retries.
 *
 * Methods throw StoreUnavailable, including for responses that violate the contract.
 */
export class EndpointClient {
  readonly contact: string
  readonly #transport: Transport
  readonly #config: RestConfig | LambdaTransport

  constructor(transport: Transport, config: RestConfig | LambdaTransport) {
    this.contact = transport.contact
    this.#transport = transport
    this.#config = config
  }

  /**
   * Save the latest snapshot, or a checkpoint under a UUIDv7; return its ETag.
   *
   * Throws Conflict.
   */
  async saveSnapshot(
    sessionId: string,
    scopeId: string,
    snapshotId: string,
    snapshot: object,
    condition: Condition = {},
  ): Promise<string | null> {
    const isLatest = snapshotId === LATEST
    const fields = { snapshot_id: snapshotId, is_latest: isLatest, snapshot }
    const request = { ...newRequest('save_snapshot', sessionId, scopeId), ...fields }
    const answer = await this.#call(request, condition)
    if (answer.status === 412) throw new Conflict()
    // 409: an earlier attempt saved the checkpoint.
    if (isLatest || answer.status !== 409) this.#expectOk(request, answer)
    return answer.etag ?? null
  }

  /** Return an answer with an object, UNREADABLE or null; status 304 if the ETag matches. */
  async loadSnapshot(
    sessionId: string,
    scopeId: string,
    snapshotId: string,
    noneMatch?: string | null,
  ): Promise<Answer> {
    const request = { ...newRequest('load_snapshot', sessionId, scopeId), snapshot_id: snapshotId }
    const answer = await this.#call(request, { noneMatch })
    return answer.status === 304 && noneMatch ? answer : this.#expectObject(request, answer)
  }

  /** Return the ids of all checkpoints, ascending. */
  async listSnapshotIds(sessionId: string, scopeId: string): Promise<string[]> {
    const all: string[] = []
    for (let page = 0; page < MAX_PAGES; page++) {
      const last = all.at(-1) ?? null
      const range = { limit: PAGE, start_after: last }
      const request = { ...newRequest('list_snapshot_ids', sessionId, scopeId), ...range }
      const answer = await this.#call(request)
      if (answer.status === 404) break
      const { snapshot_ids: ids } = (answer.value ?? {}) as { snapshot_ids?: unknown }
      const isValid = Array.isArray(ids) && ids.every((id) => UUID7.test(id))
      if (!isValid || ids.some((id, at) => at > 0 && id < ids[at - 1])) {
        throw this.#unexpected(request, answer, '{"snapshot_ids": [UUIDv7s, ascending]}')
      }
      if (!ids[0] || (last && ids[0] <= last)) break // the endpoint ignores start_after
      all.push(...ids)
    }
    return all
  }

  /** Delete all data of a session. Idempotent. */
  async deleteSession(sessionId: string): Promise<void> {
    const request: Request = { operation: 'delete_session', session_id: sessionId }
    const answer = await this.#call(request)
    if (answer.status !== 404) this.#expectOk(request, answer)
  }

  /** Save the manifest: the schema version of snapshots, and the time of the last commit. */
  async saveManifest(sessionId: string, scopeId: string): Promise<void> {
    const manifest = { schema_version: '1.0', updated_at: now() }
    const request = { ...newRequest('save_manifest', sessionId, scopeId), manifest }
    this.#expectOk(request, await this.#call(request))
  }

  /** Return the manifest, or null. */
  async loadManifest(sessionId: string, scopeId: string): Promise<Fields | null> {
    const request = newRequest('load_manifest', sessionId, scopeId)
    const { value } = this.#expectObject(request, await this.#call(request))
    return value === UNREADABLE ? {} : (value as Fields | null)
  }

  close(): void {
    this.#transport.close()
  }

  /**
   * Send a request; return an answer with status 2xx, 304, 404, 409 or 412.
   *
   * The retry policy applies, within max_attempts * timeout_ms. Throws StoreUnavailable.
   */
  async #call(request: Request, condition: Condition = {}): Promise<Answer> {
    const { timeout_ms: time, retry_policy: policy } = this.#config
    const call = `${request.operation} of ${this.contact}`
    const end = performance.now() + policy.max_attempts * time
    let indeterminate = false // of any attempt
    const attempt = async () => {
      const seconds = Math.min(time, end - performance.now()) / 1000
      const send = (stop: AbortSignal) => this.#transport.send(request, condition, stop)
      let answer
      try {
        answer = await withinSeconds(seconds, send)
      } catch (error) {
        const cause = unavailable(call, error)
        indeterminate ||= cause.indeterminate
        throw new AttemptError(0, { cause })
      }
      const { status, retryAfter = 0, failure = `HTTP ${status}` } = answer
      const isExpected = (status >= 200 && status < 300) || [304, 404, 409, 412].includes(status)
      const isRetried = policy.on_status.includes(status)
      if (isExpected && !answer.failure) return answer // even if on_status lists it
      indeterminate ||= status < 400 || status >= 500
      const cause = new StoreUnavailable(`${call}: ${failure}`)
      throw isRetried ? new AttemptError(retryAfter, { cause }) : cause
    }
    try {
      return await pRetry(attempt, {
        retries: policy.max_attempts - 1,
        minTimeout: policy.backoff_ms / 2,
        randomize: true, // multiplies the pause by 1 to 2
        maxRetryTime: policy.max_attempts * time,
        shouldRetry: async ({ error, retryDelay }) => {
          const pause = error instanceof AttemptError ? error.retryAfter - retryDelay : 0
          if (performance.now() + retryDelay + Math.max(pause, 0) >= end) return false
          if (pause > 0) await sleep(pause)
          return error instanceof AttemptError
        },
      })
    } catch (error) {
      const { message } = (error instanceof AttemptError ? error.cause : error) as Error
      throw new StoreUnavailable(message, { indeterminate })
    }
  }

  #expectOk(request: Request, answer: Answer): void {
    const { ok } = (answer.value ?? {}) as { ok?: unknown }
    if (ok !== true) throw this.#unexpected(request, answer, '{"ok": true}')
  }

  #expectObject(request: Request, answer: Answer): Answer {
    if (answer.status === 404) return { ...answer, value: null }
    const { status, value } = answer
    const isValid = value === null || value === UNREADABLE || isObject(value)
    if (status >= 300 || !isValid) throw this.#unexpected(request, answer, 'an object or null')
    return answer
  }

  #unexpected(request: Request, { status }: Answer, wanted: string): StoreUnavailable {
    const message = `${request.operation} of ${this.contact}: HTTP ${status}, expected ${wanted}`
    return new StoreUnavailable(message, { indeterminate: status < 400 || status >= 500 })
  }
}

function newRequest(operation: Operation, sessionId: string, scopeId: string): Request {
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

/** An HTTP service. It follows no redirects: they would leak the credentials. */
export class RestTransport implements Transport {
  readonly contact: string
  readonly #config: RestConfig
  readonly #url: URL | null
  readonly #maxBytes: number
  readonly #secrets: Secrets

  constructor(config: RestConfig, maxBytes: number, secrets: Secrets) {
    this.#url = serviceUrl(resolve(config.base_url))
    this.contact = this.#url?.origin ?? `the address ${config.base_url}`
    this.#config = config
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
      const message = 'base_url is not the http:// or https:// address of a service'
      throw new StoreUnavailable(message, { indeterminate: false })
    }
    await this.#authorize(headers, this.#url)
    const mayBeRotated = this.#config.credentials.source === 'aws_secrets_manager'
    let address = this.#url.origin + this.#url.pathname.replace(/\/+$/, '') + path
    let body: string | null = null
    if (method === 'POST') {
      headers.set('Content-Type', 'application/json')
      body = JSON.stringify(request)
    } else if (method === 'DELETE') {
      address += segmentOf(request.session_id)
    } else {
      const query = new URLSearchParams()
      const flat = { ...plain, scope_type: scope?.type, scope_id: scope?.scope_id }
      for (const [name, value] of Object.entries(flat)) {
        if (value !== null) query.set(name, String(value))
      }
      address += `?${query}`
    }
    const options = { method, headers, body, redirect: 'manual', signal: stop } as const
    let response = await fetch(address, options)
    if (mayBeRotated && [401, 403].includes(response.status)) {
      await response.body?.cancel()
      await this.#authorize(headers, this.#url, true)
      response = await fetch(address, options)
    }
    return toAnswer(response, await readBody(response.body ?? Readable.from([]), this.#maxBytes))
  }

  close(): void {}

  async #authorize(headers: Headers, url: URL, wasRefused = false): Promise<void> {
    const { scheme, source, name, secret_id: id = '', ...rest } = this.#config.credentials
    if (scheme === 'none') {
      const { username, password } = url
      const user = username + password && unescape(`${username}:${password}`)
      if (user) headers.set('Authorization', `Basic ${Buffer.from(user).toString('base64')}`)
      return
    }
    const { key = null, region = null, header = 'Authorization' } = rest
    const reference = source === 'env' ? `env:${name}` : id
    const value = (await this.#secrets.get({ reference, key, region }, wasRefused)).trim()
    if (!/^[!-~]([ -~]*[!-~])?$/.test(value)) {
      const message = 'the credentials have characters that a header cannot contain'
      throw new StoreUnavailable(message, { indeterminate: false })
    }
    headers.set(header, scheme === 'bearer-token' ? `Bearer ${value}` : value)
  }
}

/** Parse a response. Throws StoreUnavailable. */
function toAnswer({ status, ok, headers }: Response, raw: Buffer): Answer {
  const after = headers.get('Retry-After') ?? ''
  const type = headers.get('Content-Type') ?? ''
  if (!ok) return { status, retryAfter: /^[0-9]{1,6}$/.test(after) ? Number(after) * 1000 : 0 }
  const etag = checkEtag(headers.get('ETag'))
  try {
    return { status, value: parse(raw), etag, raw }
  } catch {
    // Without a length, a broken connection may have cut the body.
    const isWhole = headers.has('Content-Length') || headers.has('Transfer-Encoding')
    if (etag && raw.length > 0 && isWhole && type.includes('json')) {
      return { status, value: UNREADABLE, etag, raw }
    }
    throw new StoreUnavailable(`HTTP ${status}, but the body is not JSON`)
  }
}

/** Parse JSON in UTF-8. Throws SyntaxError. */
export function parse(body: Uint8Array): unknown {
  return JSON.parse(decode(body))
}

/** Return a valid ETag, or null. Throws StoreUnavailable. */
export function checkEtag(etag: unknown): string | null {
  if (etag === null || etag === undefined || etag === '') return null
  if (typeof etag === 'string' && ETAG.test(etag)) return etag
  throw new StoreUnavailable('the ETag must have 1 to 256 visible characters and must not be *')
}

/** Return a body of at most `maxBytes`. Throws StoreUnavailable. */
export async function readBody(body: AsyncIterable<Uint8Array>, maxBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of body) {
    chunks.push(chunk)
    size += chunk.length
    if (size > maxBytes) throw new StoreUnavailable(`the response exceeds ${maxBytes} bytes`)
  }
  return Buffer.concat(chunks)
}
