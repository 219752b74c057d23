// The log, and words for errors that quote nothing.

import { AgentError, BUSY_KINDS, ERRORS, type Turn } from './contract.ts'

type Failure = Error & { [field: string]: unknown; $metadata?: { httpStatusCode?: number } }

/**
 * What providers call an error that may be temporary, in a body or in a stream. Other names are not
 * logged: they may quote a prompt.
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
// Braille has a blank that is a symbol.
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}/gu

/**
 * Return the text with JSON escapes for characters that are invisible or reorder others.
 *
 * These are control and format characters, such as U+202E, and all spaces except U+0020. Apply it
 * to JSON: the result is JSON of the same value.
 */
export function visible(text: string): string {
  const escape = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`
  return text.replace(INVISIBLE, (character) => character.split('').map(escape).join(''))
}

/** Fields of an entry of the log. */
export type Fields = Record<string, string | number>

/** The log goes to stderr; only `serve` logs INFO, and JSON where LOG_FORMAT says so. */
export const logging = {
  isVerbose: false,
  isJson: false,
  sources: 'file:///', // the URL of the folder of the owner's modules
  /** Whether turns have a line; a terminal shows how they end. */
  hasTurns: true,
  labels: (): Fields => ({}), // of the running turn
  print: (line: string): void => console.error(line),
}

/** Write a line to the log. It must contain no prompt and no reply; `facts` are fields of JSON. */
export function log(level: 'INFO' | 'WARNING' | 'ERROR', line: string, facts: Fields = {}): void {
  if (!logging.isVerbose && level === 'INFO') return
  if (logging.isJson) return logging.print(jsonEntry(level, line, facts))
  // Continuation lines are indented, so that no text can fake an entry.
  const text = line.replace(CONTROL, '\ufffd').replaceAll('\n', '\n  ')
  const labels = joined(logging.labels())
  logging.print([`${new Date().toISOString()} ${level} ${text}`, ...labels].join(' '))
}

/** Print a line of the start of a command, in the form of the log if that is JSON. */
export function announce(line: string): void {
  console.log(logging.isJson ? jsonEntry('INFO', line, {}) : line)
}

function jsonEntry(level: string, message: string, facts: Fields): string {
  const time = new Date().toISOString()
  return visible(JSON.stringify({ time, level, message, ...facts, ...logging.labels() }))
}

function joined(fields: Fields): string[] {
  return Object.entries(fields).map((field) => field.join('='))
}

/**
 * Log the known facts of a turn, as in `session s: turn=1 outcome=committed ms=12`.
 *
 * A turn that failed is a warning; one that was cancelled is not.
 */
export function logTurn(turn: Turn): void {
  const facts = {
    turn: turn.number,
    outcome: turn.outcome,
    ms: turn.milliseconds,
    tokens_in: turn.usage.inputTokens,
    tokens_cached: turn.usage.cachedTokens,
    tokens_out: turn.usage.outputTokens,
    detail: turn.detail,
  }
  const isKnown = ([name, value]: [string, unknown]) => value || name === 'ms'
  const known: Fields = Object.fromEntries(Object.entries(facts).filter(isKnown))
  const line = `session ${turn.sessionId}: ${joined(known).join(' ')}`
  const level = turn.outcome in ERRORS ? 'WARNING' : 'INFO'
  log(level, line, { session: turn.sessionId, ...known })
}

/** Log the kind and the place of an unexpected error; not its text, which may quote a prompt. */
export function logUnexpected(error: unknown): void {
  const { message = '', stack = '' } = error instanceof Error ? error : {}
  // Of a tool these may be no texts, and nothing may throw here.
  log('ERROR', `${describe(error)}\n${String(stack).replace(String(message), '')}`)
}

/** Log what a listener, a timer or an unawaited promise throws, and let the process go on. */
export function surviveLateErrors(): void {
  process.on('uncaughtException', logUnexpected)
}

/** Return an error as callers may see it; an unexpected one is logged. */
export function asAgentError(error: unknown): AgentError {
  if (error instanceof AgentError) return error
  logUnexpected(error)
  return new AgentError('internal_error', '', describe(error))
}

/** Return an error and its causes, which may have no end. */
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
 * Name the kind of an error and of its causes; never its text, which may quote a prompt.
 *
 * The kind is the class, with the error's own name, its code and the HTTP status where there are
 * any, as in `TypeError < Error (ECONNREFUSED)`.
 */
export function describe(error: unknown): string {
  try {
    return kindOf(error)
  } catch {
    return 'Error' // of a tool: causes without an end, or a name that is no text
  }
}

/**
 * Return the lines of the project in which an error was thrown, the innermost first.
 *
 * As in ` at src/orders.ts:7 < src/agent.ts:34`; '' if it was thrown elsewhere.
 */
export function placeOf(error: unknown): string {
  try {
    const { message, stack } = error as Error
    const [, ...calls] = String(stack).replace(String(message), '').split(logging.sources)
    const places = calls.flatMap((call) => /^[\w./-]+:\d+/.exec(call)?.[0] ?? [])
    const shown = places.slice(0, 3).map((place) => `src/${place}`)
    return shown.length > 0 ? ` at ${shown.join(' < ')}` : ''
  } catch {
    return '' // of a tool: null, or an error whose fields throw
  }
}

function kindOf(error: unknown): string {
  if (!(error instanceof Error)) return error === null ? 'null' : typeof error
  const { name, code, status, statusCode = status, $metadata } = error as Failure
  const own = statusCode ?? $metadata?.httpStatusCode
  const named = namedIn(error as Failure)
  // With 200 a stream began before it failed.
  const http = own && own !== 200 ? own : (named.status ?? own)
  const kind = error.constructor.name
  const details = name === 'Error' || name.endsWith(kind) ? [] : [name]
  if (typeof code === 'string') details.push(code)
  if (http) details.push(`HTTP ${http}`)
  if (named.kind && named.kind !== code) details.push(named.kind)
  const shown = details.length > 0 ? `${kind} (${details.join(', ')})` : kind
  return error.cause === undefined ? shown : `${shown} < ${kindOf(error.cause)}`
}

/** Return the HTTP status and the kind that a provider's error, or its body, names. */
function namedIn(error: Failure): { status?: string | undefined; kind?: string | undefined } {
  const body = Object(error.error ?? error)
  const { code, type, status, statusCode } = Object(body.error ?? body)
  const values = [code, type, status, statusCode].map(String)
  return {
    status: values.find((value) => /^[45][0-9]{2}$/.test(value)),
    kind: values.map((value) => value.toLowerCase()).find((v) => TEMPORARY_KINDS.includes(v)),
  }
}
