// The words of the HTTP contract: its headers, its errors, and what valid input is.

const PREFIX = 'X-Amzn-Bedrock-AgentCore-Runtime-'
export const SESSION_HEADER = `${PREFIX}Session-Id`
export const ACTOR_HEADERS = [`${PREFIX}User-Id`, `${PREFIX}Custom-Actor-Id`]
export const KEY_HEADERS = ['Idempotency-Key', `${PREFIX}Custom-Idempotency-Key`]

export const SESSION_ID = /^[A-Za-z0-9][A-Za-z0-9_-]{0,255}$/
export const ACTOR_ID = /^(?=.{1,255}$)[A-Za-z0-9][A-Za-z0-9_/-]*(:[A-Za-z0-9_/-]+)*$/
export const KEY = /^[!-~]{1,128}$/
const BLANK = /^[\p{White_Space}\ufeff]*$/u

// Error type -> HTTP status, and the message for a caller, who is told no more than this.
export const ERRORS = {
  invalid_json: [400, 'The body is not one JSON value in UTF-8 of at most 64 levels.'],
  invalid_request: [400, 'The request is not valid.'],
  invalid_session_id: [400, 'A session id is 1 to 256 of A-Z a-z 0-9 _ -, not first _ or -.'],
  actor_required: [400, 'This agent remembers people: name the actor in a header.'],
  invalid_actor: [400, 'An actor id is 1 to 255 of A-Z a-z 0-9 _ - / :, so no e-mail address.'],
  session_forbidden: [403, 'This session belongs to another actor.'],
  origin_forbidden: [403, 'Only pages and programs of this machine may call this address.'],
  not_found: [404, 'There is nothing here: use POST /invocations or GET /ping.'],
  method_not_allowed: [405, 'This path does not take this method.'],
  payload_too_large: [413, 'The body is too large.'],
  session_busy: [429, 'Too many turns wait for this session.'],
  internal_error: [500, 'Something went wrong here; nothing was kept of this turn.'],
  model_failed: [502, 'The model failed; nothing was kept of this turn.'],
  empty_reply: [502, 'The model answered nothing; nothing was kept of this turn.'],
  reply_incomplete: [502, 'The model did not finish; nothing was kept of this turn.'],
  draining: [503, 'The server is shutting down.'],
  turn_timeout: [504, 'The turn took too long; nothing was kept of it.'],
} as const

/** A refusal or a failure by its type in ERRORS; `detail` is for the log only. */
export class AgentError extends Error {
  readonly type: keyof typeof ERRORS
  readonly status: number
  readonly detail: string
  readonly body: { error: { type: string; message: string } }

  constructor(type: keyof typeof ERRORS, message = '', detail = '', options?: ErrorOptions) {
    const [status, general] = ERRORS[type]
    super(message || general, options)
    this.type = type
    this.status = status
    this.detail = detail
    this.body = { error: { type, message: this.message } }
  }
}

/** What a caller asks for: a turn with this prompt, or with null the end of the session. */
export interface Ask {
  readonly sessionId: string
  readonly actor: string | null
  readonly key: string | null
  readonly prompt: string | null
}

/** Whether a text holds nothing but Unicode white space and U+FEFF. */
export function isBlank(text: string): boolean {
  return BLANK.test(text)
}

/** The text with each half of a surrogate pair that stands alone as U+FFFD. */
export function wellFormed(text: string): string {
  return text.toWellFormed()
}

/** Return a prompt of at most maxChars code points, or throw `invalid_request`. */
export function checkPrompt(value: unknown, maxChars: number): string {
  if (typeof value !== 'string' || isBlank(value) || [...value].length > maxChars) {
    const what = `The prompt must be a string, not blank, of at most ${maxChars} characters.`
    throw new AgentError('invalid_request', what)
  }
  if (!value.isWellFormed()) {
    throw new AgentError('invalid_request', 'The prompt holds half of a surrogate pair.')
  }
  return value
}

/** The value of a JSON text (RFC 8259) of at most 64 levels, or throw `invalid_json`. */
export function parseJson(body: Uint8Array): unknown {
  try {
    // The decoder would drop a byte order mark, which is not JSON.
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body)
    let [level, isQuoted] = [0, false]
    for (let at = 0; at < text.length; at++) {
      const character = text[at]
      if (character === '\\') at++
      else if (character === '"') isQuoted = !isQuoted
      else if (!isQuoted && (character === '[' || character === '{')) level++
      else if (!isQuoted && (character === ']' || character === '}')) level--
      if (level > 64) throw new RangeError('nested too deeply')
    }
    return JSON.parse(text)
  } catch {
    throw new AgentError('invalid_json')
  }
}

/** What kind of error it was; not its text, which may quote a prompt or a reply. */
export function describe(error: unknown): string {
  if (!(error instanceof Error)) return typeof error
  const { status, statusCode = status } = error as { status?: number; statusCode?: number }
  const kind = error.constructor.name + (statusCode ? ` (HTTP ${statusCode})` : '')
  return error.cause === undefined ? kind : `${kind} < ${describe(error.cause)}`
}

/** The log is stderr; only a server has use for INFO. */
export const logging = { isVerbose: false }

/** Write a line to the log. It must hold no prompt and no reply. */
export function log(level: 'INFO' | 'WARNING' | 'ERROR', line: string): void {
  if (logging.isVerbose || level !== 'INFO') {
    console.error(`${new Date().toISOString()} ${level} ${line}`)
  }
}
