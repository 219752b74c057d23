// The HTTP contract (headers, errors, input formats) and the types of turns.

import { AsyncLocalStorage } from 'node:async_hooks'
import type { IncomingHttpHeaders } from 'node:http'
import { inspect } from 'node:util'

import type { ZodType } from 'zod'

const PREFIX = 'X-Amzn-Bedrock-AgentCore-Runtime-'
export const SESSION_HEADER = `${PREFIX}Session-Id`
export const ACTOR_HEADERS = [`${PREFIX}User-Id`, `${PREFIX}Custom-Actor-Id`]
export const TOKEN_HEADER = 'X-API-Token' // an alternative to Authorization
export const KEY_HEADERS = ['Idempotency-Key', `${PREFIX}Custom-Idempotency-Key`]

// The second form accepts each id of AgentCore Runtime that an HTTP header can contain.
export const SESSION_ID = /^([A-Za-z0-9][A-Za-z0-9_-]{0,255}|[!-~][ -~]{31,254}[!-~])$/
export const ACTOR_ID = /^(?=.{1,255}$)[A-Za-z0-9][A-Za-z0-9_/-]*(:[A-Za-z0-9_/-]+)*$/
export const KEY = /^[!-~]{1,128}$/
export const INVALID_KEY =
  'An idempotency key has 1 to 128 visible ASCII characters. Send it with a session id.'
const BLANK = /^[\p{White_Space}\ufeff]*$/u

// HTTP status and default message by type.
export const ERRORS = {
  invalid_json: [400, 'Send one JSON value in UTF-8, nested at most 64 levels deep.'],
  invalid_request: [400, 'The request is not valid.'],
  invalid_session_id: [
    400,
    'A session id has 1 to 256 characters: letters, digits, _ and -. It starts with a letter or' +
      ' digit. From 33 characters, it may have any visible ASCII characters, and spaces between' +
      ' them.',
  ],
  actor_required: [400, `An actor id is required: set the header ${ACTOR_HEADERS[0]}.`],
  invalid_actor: [
    400,
    'An actor id has 1 to 255 characters: letters, digits, _ - / and single colons between' +
      ' them. It starts with a letter or digit. For an e-mail address, send its SHA-256.',
  ],
  unauthorized: [401, 'Send the token in the header `Authorization: Bearer TOKEN`.'],
  session_forbidden: [403, 'This session belongs to another actor.'],
  origin_forbidden: [403, 'Requests with this Host or Origin header are not allowed.'],
  not_found: [404, 'Not found: use POST /invocations or GET /ping.'],
  method_not_allowed: [405, 'This path does not support this method.'],
  request_timeout: [408, 'The request was not received in time.'],
  session_conflict: [409, 'Another process continued this session; this turn was not saved.'],
  not_waiting: [409, 'No tool call is waiting for approval.'],
  session_corrupt: [
    409,
    'The stored session was unreadable and has been quarantined; send the prompt again.',
  ],
  session_foreign: [409, "The agent cannot read this session's format."],
  payload_too_large: [413, 'The body is too large.'],
  prompt_too_long: [413, 'The prompt is too long for the model. Send a shorter one.'],
  session_too_large: [413, 'The turn is too large for a session; it was not saved.'],
  unsupported_file: [415, 'The model does not accept this file.'],
  session_busy: [429, 'Too many turns are waiting for this session.'],
  rate_limited: [429, 'Too many requests; retry later.'],
  head_too_large: [431, 'The request line and headers are larger than 16 KiB.'],
  internal_error: [500, 'Internal error; this turn was not saved.'],
  model_failed: [502, 'The model failed; this turn was not saved.'],
  empty_reply: [502, 'The model sent an empty reply; this turn was not saved.'],
  reply_incomplete: [502, 'The model did not finish its reply; this turn was not saved.'],
  guardrail_intervened: [502, 'A guardrail blocked this turn; it was not saved.'],
  server_busy: [503, 'Too many turns are running; retry later.'],
  draining: [503, 'The server is shutting down.'],
  store_unavailable: [503, 'The session store failed; retry with the same idempotency key.'],
  turn_timeout: [504, 'The turn timed out; it was not saved.'],
} as const

const FAILURES_OF_SAVES: readonly string[] = ['store_unavailable', 'session_conflict']

// HTTP statuses and error names of providers that are overloaded or at a rate limit.
const BUSY_STATUSES: readonly string[] = ['429', '503', '529']
export const BUSY_KINDS: readonly string[] = [
  'engine_overloaded',
  'insufficient_quota',
  'overloaded',
  'overloaded_error',
  'rate_limit',
  'rate_limit_error',
  'rate_limit_exceeded',
  'resource_exhausted',
  'server_is_overloaded',
  'service_unavailable',
  'service_unavailable_error',
  'slow_down',
  'too_many_requests',
  'unavailable',
]
const BUSY_NAME = new RegExp(`[Tt]hrottl|[Ss]erviceUnavailable|\\b(${BUSY_KINDS.join('|')})\\b`)
const BUSY_SECONDS = 10 // without a Retry-After header
// Provider SDKs report these statuses for an error in a stream.
const SDK_STATUSES = ['500', '502']
const BUSY = 'The model is overloaded or at a limit; this turn was not saved. Retry later.'

const RETRY_SOON = ['rate_limited', 'server_busy', 'draining']

export type ErrorType = keyof typeof ERRORS

/** A failure of a type in ERRORS; `detail` is for the log only. */
export class AgentError extends Error {
  override readonly name = 'AgentError'
  readonly type: ErrorType
  readonly status: number
  detail: string
  /** The number of seconds until a retry may succeed, or null. */
  retryAfter: number | null

  constructor(type: ErrorType, message = '', detail = '', options?: ErrorOptions) {
    const [status, general] = ERRORS[type]
    const isAtLimit = type === 'model_failed' && isBusy(detail)
    super(message || (isAtLimit ? BUSY : general), options)
    this.retryAfter = isAtLimit ? BUSY_SECONDS : RETRY_SOON.includes(type) ? 1 : null
    this.type = type
    this.status = status
    this.detail = detail
  }

  /** Set `retryAfter` from the provider's last 'busy' response. */
  setRetryAfter({ status, until }: Refusal): void {
    if (this.type === 'turn_timeout') this.detail ||= `after HTTP ${status}`
    else if (!this.retryAfter) return
    this.retryAfter = Math.max(1, Math.ceil((until - performance.now()) / 1000))
  }
}

/** A 'busy' response of the provider; `until` is the `performance.now()` of the next try. */
export interface Refusal {
  readonly status: number
  readonly until: number
}

/**
 * Whether an error, as `describe` formats it, means that the provider is overloaded.
 *
 * The HTTP status decides. For an error in a stream, which has no status of its own, the name of
 * the error decides.
 */
export function isBusy(description: string): boolean {
  const [, status] = /HTTP ([45]\d\d)/.exec(description) ?? []
  if (!status || SDK_STATUSES.includes(status)) return BUSY_NAME.test(description)
  return BUSY_STATUSES.includes(status) || description.includes('hrottl')
}

/** A request to delete a session, or to copy its first `turns` to the new session `fork`. */
export interface Change {
  readonly sessionId: string
  readonly actor: string | null
  readonly fork: string
  readonly turns: number
  /** For idempotency. */
  readonly key: string | null
}

/** The turns of a session; `find` returns the index of the turn with this number. */
interface TurnLookup {
  readonly turns: readonly unknown[]
  find(number: number): number
}

/** The fields of a request for one turn. */
export interface TurnFields {
  readonly sessionId: string
  readonly prompt: string
  readonly actor?: string | null
  readonly key?: string | null
  readonly replaces?: number | null
  readonly headers?: IncomingHttpHeaders
  readonly files?: readonly File[]
  readonly output?: ZodType | undefined
}

/** A file in a prompt or in a tool's result. In a prompt, its type must fit its content. */
export class File {
  readonly mediaType: string
  readonly data: Uint8Array
  /** The name without folders and control characters; it may be empty. */
  readonly name: string

  constructor(mediaType: string, data: Uint8Array, name = '') {
    this.mediaType = mediaType
    this.data = data
    const last = name.toWellFormed().split(/[/\\]/).at(-1) ?? ''
    this.name = last
      .replace(/\p{Cc}/gu, '')
      .slice(-200)
      .toWellFormed()
  }

  /** The name for messages. */
  get label(): string {
    return this.name || 'The file'
  }

  /** Whether the file is an image. */
  get isImage(): boolean {
    return this.mediaType.startsWith('image/')
  }
}

/**
 * A file of a prompt that the agent fetches when its turn begins.
 *
 * `data` is empty, and so is an unknown `mediaType`.
 */
export class FileUrl extends File {
  /** May contain a signature. */
  readonly url: string

  constructor(url: string, mediaType = '', name = '') {
    super(mediaType, new Uint8Array(), name)
    this.url = url
  }
}

/** Throw AgentError `invalid_session_id` or `invalid_actor`. */
export function checkIds(sessionId: string, actor: string | null): void {
  if (!SESSION_ID.test(sessionId)) throw new AgentError('invalid_session_id')
  if (actor !== null && !ACTOR_ID.test(actor)) throw new AgentError('invalid_actor')
}

/** A request for one turn. */
export class TurnRequest {
  readonly sessionId: string
  readonly prompt: string
  readonly actor: string | null
  /** The idempotency key: a retry returns the result of the first turn. */
  readonly key: string | null
  /** Drop the turn with this number and all later turns; 0: the last turn. */
  readonly replaces: number | null
  readonly headers: IncomingHttpHeaders
  /** The files for the model, with the prompt. */
  readonly files: readonly File[]
  /** The schema of the output value. */
  readonly output: ZodType | undefined

  /** Throws AgentError for an invalid id or key. */
  constructor(fields: TurnFields) {
    const { sessionId, prompt, actor = null, key = null, replaces = null } = fields
    checkIds(sessionId, actor)
    if (key !== null && !KEY.test(key)) throw new AgentError('invalid_request', INVALID_KEY)
    this.sessionId = sessionId
    this.prompt = prompt
    this.actor = actor
    this.key = key
    this.replaces = replaces
    this.headers = fields.headers ?? {}
    this.files = fields.files ?? []
    this.output = fields.output
  }

  /** Whether the result of an earlier turn with the same key can answer the request. */
  get isRepeatable(): boolean {
    return this.key !== null
  }

  /** Whether the request has a prompt; otherwise the replaced turn runs again. */
  get hasPrompt(): boolean {
    return this.replaces === null || this.prompt !== ''
  }

  /** Return a copy of this request with the actor, key and headers of the caller, or with files. */
  of(fields: Pick<TurnRequest, 'actor' | 'key' | 'headers'> | Pick<TurnRequest, 'files'>): this {
    return Object.assign(Object.create(Object.getPrototypeOf(this)), this, fields)
  }

  /** Return the number of turns in the session that precede the new turn. */
  follow(session: TurnLookup): number {
    return this.replaces === null ? session.turns.length : session.find(this.replaces)
  }
}

/** The number of tokens that a turn used; 0 means unknown. */
export interface Usage {
  inputTokens: number
  /** The part of `inputTokens` that was read from the provider's cache. */
  cachedTokens: number
  outputTokens: number
}

/** The result of a committed or waiting turn. */
export interface TurnResult {
  readonly sessionId: string
  readonly turn: number
  readonly reply: string
  /** The output value, parsed by the request's schema. */
  readonly output: unknown
  readonly outcome: 'committed' | 'replayed' | 'waiting'
  readonly usage: Usage
  /** As in Turn. */
  readonly model: string
  /** The pending approvals: tool calls with the ids to approve or deny. */
  readonly waiting: readonly ToolCall[]
  readonly marks: readonly Mark[]
}

/** What happened before this turn: the store lost turns, or a pending approval was dropped. */
export const MARKS = ['restarted', 'rolled_back', 'dropped'] as const
export type Mark = (typeof MARKS)[number]

/** A running turn. */
export class Turn {
  /** Its files have their data when the model is called. */
  request: TurnRequest
  /** The prompt of the request, or that of the turn to repeat or continue. */
  prompt: string
  /** The key of the request, or of the continued turn. */
  key: string | null
  /** Aborts when the turn ends; tools pass it to their calls. */
  signal: AbortSignal = new AbortController().signal
  /** The memories in the request. */
  recalled: readonly string[] = []
  /** JSON data that capabilities keep while the turn waits for approval. */
  kept: Record<string, unknown> = {}
  /** The pending approvals. */
  waiting: readonly ToolCall[] = []
  /** The text of all steps so far. */
  reply = ''
  /** The output value. */
  output: unknown = undefined
  /** Whether the turn has passed limits, queue and owner check, and its session is loaded. */
  hasBegun = false
  // These fields are also set for a failed turn; 0 means unknown.
  number = 0
  /** `running`, then `committed`, `replayed`, `waiting`, `cancelled`, or a type in ERRORS. */
  outcome = 'running'
  /** For the log only. */
  detail = ''
  /**
   * The id of the last model that answered; `offline` without MODEL, '' before an answer.
   *
   * A capability that chooses another model sets it.
   */
  model = ''
  readonly usage: Usage = { inputTokens: 0, cachedTokens: 0, outputTokens: 0 }
  /** The part of `usage` that `charge` added. */
  readonly charged: Usage = { inputTokens: 0, cachedTokens: 0, outputTokens: 0 }
  milliseconds = 0
  readonly #emit: Emit
  #blankReasoning = ''
  /** The provider's last 'busy' response. */
  #refusal: Refusal | null = null

  constructor(request: TurnRequest, emit: Emit = discard) {
    this.request = request
    this.prompt = request.prompt
    this.key = request.key
    this.#emit = emit
  }

  get sessionId(): string {
    return this.request.sessionId
  }

  get actor(): string | null {
    return this.request.actor
  }

  get headers(): IncomingHttpHeaders {
    return this.request.headers
  }

  /** Send a chunk to the caller; drop it if the turn has ended. */
  async emit(chunk: Chunk): Promise<void> {
    if (!(chunk instanceof Reasoning)) this.#blankReasoning = ''
    if (this.outcome === 'running') await this.#emit(chunk)
  }

  /** Add the tokens of a model call. */
  count({ inputTokens, cachedTokens, outputTokens }: Usage): void {
    this.usage.inputTokens += inputTokens
    this.usage.cachedTokens += cachedTokens
    this.usage.outputTokens += outputTokens
  }

  /** Append text to the reply and send it. */
  async say(text: string): Promise<void> {
    this.reply += text
    if (text) await this.emit(text)
  }

  /** Send a part of the model's reasoning; hold white space back until a word follows. */
  async reason(text: string): Promise<void> {
    const whole = this.#blankReasoning + text.toWellFormed()
    this.#blankReasoning = isBlank(whole) ? whole : ''
    if (!isBlank(whole)) await this.emit(new Reasoning(whole))
  }

  /** Send a tool's progress; drop a value that is not JSON. */
  async progress(value: unknown): Promise<void> {
    let data: Data
    try {
      data = new Data('progress', value)
    } catch {
      return
    }
    await this.emit(data)
  }

  /**
   * Count the tokens of a tool's model calls as usage of the turn, and against token limits.
   *
   * Throws RangeError for a negative or fractional number.
   */
  charge({ inputTokens = 0, outputTokens = 0 }: Partial<Usage>): void {
    for (const tokens of [inputTokens, outputTokens]) {
      const isCount = Number.isSafeInteger(tokens) && tokens >= 0
      if (!isCount) throw new RangeError('Charge a whole number of tokens, at least 0.')
    }
    this.count({ inputTokens, outputTokens, cachedTokens: 0 })
    this.charged.inputTokens += inputTokens
    this.charged.outputTokens += outputTokens
  }

  /** Return the result of the turn. */
  result(outcome: TurnResult['outcome'], marks: readonly Mark[]): TurnResult {
    const { sessionId, number: turn, reply, output, usage, model, waiting } = this
    return { sessionId, turn, reply, output, outcome, usage, model, waiting, marks }
  }

  /** Return the fields that a log may contain: no prompt and no headers. */
  toJSON(): object {
    const { sessionId, actor, key, number, outcome, detail } = this
    return { sessionId, actor, key, number, outcome, detail }
  }

  [inspect.custom](): object {
    return this.toJSON()
  }

  /** Record how long the provider is busy; `retryAfter` is the value of the Retry-After header. */
  noteAnswer(status: number, retryAfter = ''): void {
    this.#refusal = null
    if (!BUSY_STATUSES.includes(String(status))) return
    const seconds = /^[0-9]{1,6}$/.test(retryAfter) ? Number(retryAfter) : BUSY_SECONDS
    this.#refusal = { status, until: performance.now() + 1000 * seconds }
  }

  /** Record the error that ended the turn, or the cancellation if `signal` has aborted. */
  fail(error: unknown, signal: AbortSignal): void {
    const failure = error instanceof AgentError ? error : new AgentError('internal_error')
    if (this.#refusal) failure.setRetryAfter(this.#refusal)
    const { type, detail } = failure
    // A cancellation does not stop a save, so the failure of the save is the outcome.
    const isCancelled = signal.aborted && !FAILURES_OF_SAVES.includes(type)
    this.outcome = isCancelled ? outcomeOf(signal.reason) : type
    this.detail = detail
  }
}

/** Return the outcome of a cancelled turn: `draining` for a shutdown. */
function outcomeOf(reason: unknown): string {
  return reason instanceof AgentError ? reason.type : 'cancelled'
}

export const RUNNING = new AsyncLocalStorage<Turn>()

/** Return the running turn. Throws an Error outside a turn. */
export function currentTurn(): Turn {
  const turn = RUNNING.getStore()
  if (!turn) throw new Error('currentTurn() was called outside a turn: call it in a tool.')
  return turn
}

/** The start of a tool call. */
export interface ToolCall {
  readonly id: string
  readonly name: string
  readonly input: unknown
}

/** The result of the tool call with this id. */
export interface ToolResult {
  readonly id: string
  readonly text: string
  readonly isError: boolean
  /** The object or list that the tool returned. */
  readonly value?: unknown
  /** The images and documents that the tool returned. */
  readonly files?: readonly File[]
}

const DATA_NAME = /^[A-Za-z0-9_-]{1,64}$/
const MAX_LEVELS = 64 // of nesting in JSON

/** A copy of a value for the caller, such as a tool's progress; no session stores it. */
export class Data {
  readonly name: string
  readonly value: unknown

  /** Throws TypeError for an invalid name or a value that is not JSON. */
  constructor(name: string, value: unknown) {
    if (!DATA_NAME.test(name)) {
      throw new TypeError('A Data name must have 1 to 64 characters: A-Z, a-z, 0-9, _ or -.')
    }
    this.name = name
    this.value = copyOf(value)
  }
}

/** Return a copy of a JSON value without undefined fields. Throws TypeError. */
function copyOf(value: unknown, level = 0): unknown {
  if (Array.isArray(value) && level < MAX_LEVELS) {
    return Array.from(value, (item) => copyOf(item, level + 1))
  }
  if (isPlainObject(value) && level < MAX_LEVELS) {
    const fields = Object.entries(value).filter(([, field]) => field !== undefined)
    return Object.fromEntries(fields.map(([name, field]) => [name, copyOf(field, level + 1)]))
  }
  const isJson = value === null || ['string', 'boolean'].includes(typeof value)
  if (isJson || Number.isFinite(value)) return value
  throw new TypeError('The value of Data must be JSON.')
}

function isPlainObject(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false
  return [Object.prototype, null].includes(Object.getPrototypeOf(value))
}

/** A page on which the reply is based; no session stores it. */
export class Source {
  readonly url: string
  readonly title: string

  constructor(url: string, title = '') {
    this.url = url
    this.title = title
  }
}

/** A part of the model's reasoning; it does not belong to the reply. */
export class Reasoning {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

/** The types of a turn's output. Your own code can emit chunks, too. */
export type Chunk = string | ToolCall | ToolResult | Reasoning | Data | Source
export type Emit = (chunk: Chunk) => Promise<void>

/** Ignores the chunk. */
const discard: Emit = async () => {}

/** Whether a string consists only of Unicode white space and U+FEFF. */
export function isBlank(text: string): boolean {
  return BLANK.test(text)
}

/** Return a prompt of at most `maxChars` code points, or throw `invalid_request`. */
export function checkPrompt(value: unknown, maxChars: number): string {
  if (typeof value !== 'string' || isBlank(value) || [...value].length > maxChars) {
    const message = `Send a prompt that is not blank and has at most ${maxChars} characters.`
    throw new AgentError('invalid_request', message)
  }
  if (!value.isWellFormed()) {
    const message = 'The prompt contains a lone surrogate: send well-formed Unicode.'
    throw new AgentError('invalid_request', message)
  }
  return value
}
