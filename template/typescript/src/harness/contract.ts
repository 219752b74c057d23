// The HTTP contract as data: headers, errors, turns, and the forms of valid input.

import { AsyncLocalStorage } from 'node:async_hooks'
import type { IncomingHttpHeaders } from 'node:http'
import { inspect } from 'node:util'

import type { ZodType } from 'zod'

const PREFIX = 'X-Amzn-Bedrock-AgentCore-Runtime-'
export const SESSION_HEADER = `${PREFIX}Session-Id`
export const ACTOR_HEADERS = [`${PREFIX}User-Id`, `${PREFIX}Custom-Actor-Id`]
export const TOKEN_HEADER = 'X-API-Token' // instead of Authorization
export const KEY_HEADERS = ['Idempotency-Key', `${PREFIX}Custom-Idempotency-Key`]

export const SESSION_ID = /^[A-Za-z0-9][A-Za-z0-9_-]{0,255}$/
export const ACTOR_ID = /^(?=.{1,255}$)[A-Za-z0-9][A-Za-z0-9_/-]*(:[A-Za-z0-9_/-]+)*$/
export const KEY = /^[!-~]{1,128}$/
export const INVALID_KEY =
  'An idempotency key is 1 to 128 visible ASCII characters and needs a session.'
const BLANK = /^[\p{White_Space}\ufeff]*$/u

// Error type -> HTTP status and message; callers see only this message.
export const ERRORS = {
  invalid_json: [400, 'Send one JSON value in UTF-8, nested at most 64 levels deep.'],
  invalid_request: [400, 'The request is not valid.'],
  invalid_session_id: [400, 'A session id must match [A-Za-z0-9][A-Za-z0-9_-]{0,255}.'],
  actor_required: [400, `An actor id is required: set the header ${ACTOR_HEADERS[0]}.`],
  invalid_actor: [
    400,
    'An actor id has 1 to 255 characters: letters, digits, _ - / and single colons between' +
      ' them. It starts with a letter or digit. For an e-mail address, send its SHA-256.',
  ],
  unauthorized: [401, 'Send the header Authorization: Bearer with the token.'],
  session_forbidden: [403, 'This session belongs to another actor.'],
  origin_forbidden: [403, 'This Host or Origin may not call this address.'],
  not_found: [404, 'Not found: use POST /invocations or GET /ping.'],
  method_not_allowed: [405, 'This path does not support this method.'],
  request_timeout: [408, 'The request was not complete in time.'],
  session_conflict: [409, 'Another process continued this session; this turn was not kept.'],
  not_waiting: [409, 'No tool call waits for an approval.'],
  session_corrupt: [
    409,
    'The stored session was unreadable and has been quarantined; send the prompt again.',
  ],
  session_foreign: [409, 'This session has a format that the agent does not read.'],
  payload_too_large: [413, 'The body is too large.'],
  prompt_too_long: [413, 'The prompt is too long for the model. Send a shorter one.'],
  session_too_large: [413, 'The turn is too large for a session; it was not kept.'],
  session_busy: [429, 'Too many turns are waiting for this session.'],
  rate_limited: [429, 'Too many requests; retry later.'],
  internal_error: [500, 'Internal error; this turn was not kept.'],
  model_failed: [502, 'The model failed; this turn was not kept.'],
  empty_reply: [502, 'The model sent an empty reply; this turn was not kept.'],
  reply_incomplete: [502, 'The model did not finish its reply; this turn was not kept.'],
  guardrail_intervened: [502, 'A guardrail blocked this turn; it was not kept.'],
  server_busy: [503, 'Too many turns are running; retry later.'],
  draining: [503, 'The server is shutting down.'],
  store_unavailable: [503, 'The session store failed; retry with the same idempotency key.'],
  turn_timeout: [504, 'The turn timed out; it was not kept.'],
} as const

// A provider that has reached a limit or has too much to do: its statuses, and its names for that.
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
const BUSY_SECONDS = 10 // if a busy provider does not say how long to wait
const MADE_UP = ['500', '502'] // by clients, for an error in a stream
const BUSY = 'The model is overloaded or at a limit; this turn was not kept: retry later.'

const RETRY_SOON = ['rate_limited', 'server_busy', 'draining']

/** A failure of a type in ERRORS; `detail` is for the log only. */
export class AgentError extends Error {
  override readonly name = 'AgentError'
  readonly type: keyof typeof ERRORS
  readonly status: number
  detail: string
  /** In how many seconds to try again; null where that may not help. */
  retryAfter: number | null

  constructor(type: keyof typeof ERRORS, message = '', detail = '', options?: ErrorOptions) {
    const [status, general] = ERRORS[type]
    const isAtLimit = type === 'model_failed' && isBusy(detail)
    super(message || (isAtLimit ? BUSY : general), options)
    this.retryAfter = isAtLimit ? BUSY_SECONDS : RETRY_SOON.includes(type) ? 1 : null
    this.type = type
    this.status = status
    this.detail = detail
  }

  /** Use what the provider said last, if the turn ended for that. */
  followRefusal({ status, until }: Refusal): void {
    if (this.type === 'turn_timeout') this.detail ||= `after HTTP ${status}`
    else if (!this.retryAfter) return
    this.retryAfter = Math.max(1, Math.ceil((until - performance.now()) / 1000))
  }
}

/** An answer of a busy provider; `until` is when it wants the next call. */
export interface Refusal {
  readonly status: number
  readonly until: number
}

/**
 * Whether an error of a provider, as `describe` shows it, says to try again later.
 *
 * Its status decides; in a stream it has none.
 */
export function isBusy(description: string): boolean {
  const [, status] = /HTTP ([45]\d\d)/.exec(description) ?? []
  if (!status || MADE_UP.includes(status)) return BUSY_NAME.test(description)
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

/** The turns that a session holds, and how many of them are before the turn of this number. */
interface Turned {
  readonly turns: readonly unknown[]
  find(number: number): number
}

/** The fields of a request for one turn. */
export interface Asked {
  readonly sessionId: string
  readonly prompt: string
  readonly actor?: string | null
  readonly key?: string | null
  readonly replaces?: number | null
  readonly headers?: IncomingHttpHeaders
  readonly output?: ZodType | undefined
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
  /** Makes a retry safe: the turn that has it is not run again. */
  readonly key: string | null
  /** The number of the turn to replace, with all after it; 0: the last. */
  readonly replaces: number | null
  readonly headers: IncomingHttpHeaders
  /** The schema of the value in which the turn ends. */
  readonly output: ZodType | undefined

  /** Throws AgentError if an id or the key is not valid. */
  constructor(asked: Asked) {
    const { sessionId, prompt, actor = null, key = null, replaces = null } = asked
    checkIds(sessionId, actor)
    if (key !== null && !KEY.test(key)) throw new AgentError('invalid_request', INVALID_KEY)
    this.sessionId = sessionId
    this.prompt = prompt
    this.actor = actor
    this.key = key
    this.replaces = replaces
    this.headers = asked.headers ?? {}
    this.output = asked.output
  }

  /** Whether the turn of the session with this key is the answer to the request. */
  get isRepeatable(): boolean {
    return this.key !== null
  }

  /** Whether there is a prompt to check: a turn that is replaced can give its own. */
  get hasPrompt(): boolean {
    return this.replaces === null || this.prompt !== ''
  }

  /** Return the request with the fields of its caller. */
  of(caller: Pick<TurnRequest, 'actor' | 'key' | 'headers'>): this {
    return Object.assign(Object.create(Object.getPrototypeOf(this)), this, caller)
  }

  /** Return how many of the turns that the session holds stay before this one. */
  follow(session: Turned): number {
    return this.replaces === null ? session.turns.length : session.find(this.replaces)
  }
}

/** Tokens, as providers count them; 0 means unknown. */
export interface Usage {
  inputTokens: number
  /** Of those, read from the cache of the provider. */
  cachedTokens: number
  outputTokens: number
}

/** The result of a turn that is committed, or waits for an approval. */
export interface TurnResult {
  readonly sessionId: string
  readonly turn: number
  readonly reply: string
  /** The value that the request asked for, as its schema returns it. */
  readonly output: unknown
  readonly outcome: 'committed' | 'replayed' | 'waiting'
  readonly usage: Usage
  /** The tool calls that wait for an approval, by the ids that an answer names. */
  readonly waiting: readonly ToolCall[]
  readonly marks: readonly Mark[]
}

/** What the store had lost of a session, and whether the turn took the place of a waiting one. */
export const MARKS = ['restarted', 'rolled_back', 'dropped'] as const
export type Mark = (typeof MARKS)[number]

/** A running turn. */
export class Turn {
  readonly request: TurnRequest
  /** That of the request, or of the turn that it repeats or continues. */
  prompt: string
  /** That of the request, or of the turn that it continues. */
  key: string | null
  /** Aborted when the turn ends: for what its tools call. */
  signal: AbortSignal = new AbortController().signal
  /** The texts of long-term memory that the model was shown. */
  recalled: readonly string[] = []
  /** JSON of capabilities, kept while the turn waits. */
  kept: Record<string, unknown> = {}
  /** The tool calls that wait for an approval. */
  waiting: readonly ToolCall[] = []
  /** The text so far. */
  reply = ''
  /** The value that the request asks for. */
  output: unknown = undefined
  /** Whether it has passed limits, queue, owner and store: the model is next. */
  hasBegun = false
  // Filled in even when the turn fails; 0 means unknown.
  number = 0
  /** `running`, then `committed`, `replayed`, `waiting`, `cancelled`, or a type in ERRORS. */
  outcome = 'running'
  /** For the log only. */
  detail = ''
  readonly usage: Usage = { inputTokens: 0, cachedTokens: 0, outputTokens: 0 }
  /** Of `usage`, those of `charge`. */
  readonly charged: Usage = { inputTokens: 0, cachedTokens: 0, outputTokens: 0 }
  milliseconds = 0
  readonly #emit: Emit
  /** What the provider answered last, if it was busy. */
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

  /** Send a chunk of output to the caller; after the end of the turn it is dropped. */
  async emit(chunk: Chunk): Promise<void> {
    if (this.outcome === 'running') await this.#emit(chunk)
  }

  /** Add the tokens of a call of a model. */
  count({ inputTokens, cachedTokens, outputTokens }: Usage): void {
    this.usage.inputTokens += inputTokens
    this.usage.cachedTokens += cachedTokens
    this.usage.outputTokens += outputTokens
  }

  /** Add to the reply, and send it to the caller. */
  async say(text: string): Promise<void> {
    this.reply += text
    if (text) await this.emit(text)
  }

  /** Send what a tool yields while it works; a value that is not JSON is dropped. */
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
   * Count tokens of a model that the turn did not call itself, also in the limits of its actor.
   *
   * Throws RangeError unless they are whole numbers from 0.
   */
  charge({ inputTokens = 0, outputTokens = 0 }: Partial<Usage>): void {
    for (const tokens of [inputTokens, outputTokens]) {
      const isCount = Number.isSafeInteger(tokens) && tokens >= 0
      if (!isCount) throw new RangeError('The tokens of a charge must be whole numbers from 0.')
    }
    this.count({ inputTokens, outputTokens, cachedTokens: 0 })
    this.charged.inputTokens += inputTokens
    this.charged.outputTokens += outputTokens
  }

  /** Return the result of the turn. */
  result(outcome: TurnResult['outcome'], marks: readonly Mark[]): TurnResult {
    const { sessionId, number: turn, reply, output, usage, waiting } = this
    return { sessionId, turn, reply, output, outcome, usage, waiting, marks }
  }

  /** Return what a log may show: neither prompt nor headers. */
  toJSON(): object {
    const { sessionId, actor, key, number, outcome, detail } = this
    return { sessionId, actor, key, number, outcome, detail }
  }

  [inspect.custom](): object {
    return this.toJSON()
  }

  /** Note whether the provider is busy, and until when; `retryAfter` is its header. */
  noteAnswer(status: number, retryAfter = ''): void {
    this.#refusal = null
    if (!BUSY_STATUSES.includes(String(status))) return
    const seconds = /^[0-9]{1,6}$/.test(retryAfter) ? Number(retryAfter) : BUSY_SECONDS
    this.#refusal = { status, until: performance.now() + 1000 * seconds }
  }

  /** Note the error that ends the turn, which `signal` cancels. */
  fail(error: unknown, signal: AbortSignal): void {
    const failure = error instanceof AgentError ? error : new AgentError('internal_error')
    if (this.#refusal) failure.followRefusal(this.#refusal)
    const { type, detail } = failure
    this.outcome = signal.aborted ? outcomeOf(signal.reason) : type
    this.detail = detail
  }
}

/** Return the outcome of a cancelled turn: `draining` if the end of the process cut it. */
function outcomeOf(reason: unknown): string {
  return reason instanceof AgentError ? reason.type : 'cancelled'
}

export const RUNNING = new AsyncLocalStorage<Turn>()

/** Return the turn in which a tool runs. Throws an Error outside a turn. */
export function currentTurn(): Turn {
  const turn = RUNNING.getStore()
  if (!turn) throw new Error('currentTurn() was called outside a turn')
  return turn
}

/** The start of a tool call. */
export interface ToolCall {
  readonly id: string
  readonly name: string
  readonly input: unknown
}

/** What the tool call of this id returned, as text. */
export interface ToolResult {
  readonly id: string
  readonly text: string
  readonly isError: boolean
  /** The JSON that the tool returned in place of a text. */
  readonly value?: unknown
}

const DATA_NAME = /^[A-Za-z0-9_-]{1,64}$/
const MAX_LEVELS = 64 // of nested JSON

/** A value for the page or the caller, such as the progress of a tool; it is not stored. */
export class Data {
  readonly name: string
  readonly value: unknown

  /** Copies the value. Throws TypeError if it is not JSON, or for an invalid name. */
  constructor(name: string, value: unknown) {
    if (!DATA_NAME.test(name)) {
      throw new TypeError('The name of Data must be 1 to 64 of A-Z a-z 0-9 _ -.')
    }
    this.name = name
    this.value = copyOf(value)
  }
}

/** Return a copy of JSON, without fields that are undefined. Throws TypeError. */
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

/** A source of the reply; it is not stored. */
export class Source {
  readonly url: string
  readonly title: string

  constructor(url: string, title = '') {
    this.url = url
    this.title = title
  }
}

/** The output of a turn, in order. */
export type Chunk = string | ToolCall | ToolResult | Data | Source
export type Emit = (chunk: Chunk) => Promise<void>

/** Receives chunks that nobody reads. */
const discard: Emit = async () => {}

/** Whether a text is empty or holds only Unicode white space and U+FEFF. */
export function isBlank(text: string): boolean {
  return BLANK.test(text)
}

/** Return a prompt of at most maxChars code points, or throw `invalid_request`. */
export function checkPrompt(value: unknown, maxChars: number): string {
  if (typeof value !== 'string' || isBlank(value) || [...value].length > maxChars) {
    const what = `The prompt must be a string, not blank, of at most ${maxChars} characters.`
    throw new AgentError('invalid_request', what)
  }
  if (!value.isWellFormed()) {
    throw new AgentError('invalid_request', 'The prompt contains a lone surrogate.')
  }
  return value
}
