// The log: error descriptions without prompts, and escaping, so that text cannot forge a line.

import { AgentError, BUSY_KINDS, ERRORS, type Turn } from './contract.ts'

type Failure = Error & { [field: string]: unknown; $metadata?: { httpStatusCode?: number } }

/**
 * Providers' names of temporary errors, in a body or a stream. The log omits other names, because
 * they may quote a prompt.
 */
export const TEMPORARY_KINDS: readonly string[] = [
  ...BUSY_KINDS,
  'api_error',
  'deadline_exceeded',
  'internal',
  'internal_error',
  'internal_server_error',
  'internalservererror',
  'server_error',
  'timeout',
  'timeout_error',
]

const MAX_CAUSES = 20

/** Control characters except tab and line feed: they could move the cursor. */
export const CONTROL = /(?![\t\n])\p{Cc}/gu
// U+2800 is the blank Braille pattern.
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}/gu

/**
 * Return JSON text with escapes for invisible and reordering characters.
 *
 * These are control and format characters, such as U+202E, and all spaces except U+0020. The JSON
 * value stays the same.
 */
export function escapeInvisible(text: string): string {
  const escape = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`
  return text.replace(INVISIBLE, (character) => character.split('').map(escape).join(''))
}

/** Fields of a log entry. */
export type Fields = Record<string, string | number>

/** The options of the log on stderr; `serve` sets INFO and the format of LOG_FORMAT. */
export const logging = {
  isVerbose: false,
  isJson: false,
  sources: 'file:///', // the URL of the project's own modules
  /** Whether to log a line for each turn; `chat` does not. */
  hasTurns: true,
  labels: (): Fields => ({}), // the fields of the running turn
  print: (line: string): void => console.error(line),
}

/** Log a line, which must not contain prompts or replies; in JSON, `facts` become fields. */
export function log(level: 'INFO' | 'WARNING' | 'ERROR', line: string, facts: Fields = {}): void {
  if (!logging.isVerbose && level === 'INFO') return
  if (logging.isJson) return logging.print(jsonEntry(level, line, facts))
  // Indented continuation lines cannot forge an entry.
  const text = line.replace(CONTROL, '\ufffd').replaceAll('\n', '\n  ')
  const labels = formatFields(logging.labels())
  logging.print([`${new Date().toISOString()} ${level} ${text}`, ...labels].join(' '))
}

/** Print a startup line, as a log entry if the log is JSON. */
export function announce(line: string): void {
  console.log(logging.isJson ? jsonEntry('INFO', line, {}) : line)
}

function jsonEntry(level: string, message: string, facts: Fields): string {
  const time = new Date().toISOString()
  return escapeInvisible(JSON.stringify({ time, level, message, ...facts, ...logging.labels() }))
}

function formatFields(fields: Fields): string[] {
  return Object.entries(fields).map((field) => field.join('='))
}

/**
 * Log the known facts of a turn, as in `session s: turn=1 outcome=committed ms=12`.
 *
 * The facts include the turn's model only if it is not `model`, the value of MODEL. A failed turn
 * is a warning; a cancelled turn is not.
 */
export function logTurn(turn: Turn, model: string): void {
  const facts = {
    turn: turn.number,
    outcome: turn.outcome,
    ms: turn.milliseconds,
    tokens_in: turn.usage.inputTokens,
    tokens_cached: turn.usage.cachedTokens,
    tokens_out: turn.usage.outputTokens,
    model: turn.model === model ? '' : turn.model,
    detail: turn.detail,
  }
  const isKnown = ([name, value]: [string, unknown]) => value || name === 'ms'
  const fields: Fields = Object.fromEntries(Object.entries(facts).filter(isKnown))
  const line = `session ${turn.sessionId}: ${formatFields(fields).join(' ')}`
  const level = turn.outcome in ERRORS ? 'WARNING' : 'INFO'
  log(level, line, { session: turn.sessionId, ...fields })
}

/** Log the kinds and the stack of an error, without its text, which may quote a prompt. */
export function logUnexpected(error: unknown): void {
  const { message = '', stack = '' } = error instanceof Error ? error : {}
  // A tool's error may have any fields: logging it must not throw.
  log('ERROR', `${describe(error)}\n${String(stack).replace(String(message), '')}`)
}

/** Log errors outside turns, so that the process survives them. */
export function surviveLateErrors(): void {
  process.on('uncaughtException', logUnexpected)
}

/** Return an AgentError; log any other error and hide it from the caller. */
export function asAgentError(error: unknown): AgentError {
  if (error instanceof AgentError) return error
  logUnexpected(error)
  return new AgentError('internal_error', '', describe(error))
}

/** Return an error and its causes, at most MAX_CAUSES errors. */
export function causesOf(error: unknown): Error[] {
  const causes: Error[] = []
  let cause = error
  while (cause instanceof Error && causes.length < MAX_CAUSES) {
    causes.push(cause)
    cause = cause.cause
  }
  return causes
}

/**
 * Return the kinds of an error and its causes, without its text, which may quote a prompt.
 *
 * A kind is the class with the error's name, code and HTTP status, if any, as in
 * `TypeError < Error (ECONNREFUSED)`.
 */
export function describe(error: unknown): string {
  try {
    return kindOf(error)
  } catch {
    return 'Error' // a tool's error may have endless causes or an invalid name
  }
}

/**
 * Return the project's lines in an error's stack, the innermost first.
 *
 * The form is ` at src/orders.ts:7 < src/agent.ts:34`, or '' if the stack has no such line.
 */
export function placeOf(error: unknown): string {
  try {
    const { message, stack } = error as Error
    const [, ...calls] = String(stack).replace(String(message), '').split(logging.sources)
    const places = calls.flatMap((call) => /^[\w./-]+:\d+/.exec(call)?.[0] ?? [])
    const lines = places.slice(0, 3).map((place) => `src/${place}`)
    return lines.length > 0 ? ` at ${lines.join(' < ')}` : ''
  } catch {
    return '' // a tool may throw null, or an error whose fields throw
  }
}

function kindOf(error: unknown): string {
  if (!(error instanceof Error)) return error === null ? 'null' : typeof error
  const { name, code, status, statusCode = status, $metadata } = error as Failure
  const responseStatus = statusCode ?? $metadata?.httpStatusCode
  const body = statusAndKind(error as Failure)
  // Status 200 means that a stream failed after it had started.
  const isFailure = responseStatus && responseStatus !== 200
  const http = isFailure ? responseStatus : (body.status ?? responseStatus)
  const kind = error.constructor.name
  const details = name === 'Error' || name.endsWith(kind) ? [] : [name]
  if (typeof code === 'string') details.push(code)
  if (http) details.push(`HTTP ${http}`)
  if (body.kind && body.kind !== code) details.push(body.kind)
  const description = details.length > 0 ? `${kind} (${details.join(', ')})` : kind
  return error.cause === undefined ? description : `${description} < ${kindOf(error.cause)}`
}

/** Return the HTTP status and the kind in a provider's error or its body. */
function statusAndKind(error: Failure): { status?: string | undefined; kind?: string | undefined } {
  const body = Object(error.error ?? error)
  const { code, type, status, statusCode } = Object(body.error ?? body)
  const values = [code, type, status, statusCode].map(String)
  return {
    status: values.find((value) => /^[45][0-9]{2}$/.test(value)),
    kind: values.map((value) => value.toLowerCase()).find((v) => TEMPORARY_KINDS.includes(v)),
  }
}
