// A request that is too long for the model: how it is recognized, and how it becomes shorter.

import { AgentError, type Turn } from './contract.ts'
import { log } from './log.ts'
import type { Session } from './sessions.ts'

const MAX_TRIES = 6 // in one turn
const MIN_RESULT = 500 // characters of a tool's result that is not cut

// What providers say about a request that is too long: OpenAI, Azure, Groq, Mistral, Anthropic,
// Bedrock, Gemini, vLLM, llama.cpp and xAI. Limits of tokens per minute are worded differently.
const TOO_LONG = new RegExp(
  'context_length_exceeded|maximum context length|reduce the length of the messages' +
    '|exceeds? the context window|input tokens exceed the configured limit' +
    '|prompt is too long|exceed context limit|request_too_large' +
    '|input is too long for requested model|too many input tokens|too many total text bytes' +
    '|exceeds the maximum number of tokens|longer than the maximum model length' +
    '|exceed_context_size_error|exceeds the available context size|maximum prompt length is',
  'i',
)
// The statuses of such a refusal. In a stream it has none, that of the stream, or 500 where the
// client makes one up.
const STATUSES = [200, 400, 413, 422, 500]
const MAX_TEXT = 4000 // characters of an error that are read, at its beginning and at its end
const MARK = /… \[cut: the result was (\d+) characters long\]$/
// Where messages hold the bytes of files, which are no text.
const BINARY = ['bytes', 'data', 'image']

type Failure = Error & Record<string, unknown> & { $metadata?: { httpStatusCode?: number } }

/** Whether a model refused a request because it is too long. */
export function isTooLong(error: unknown): boolean {
  const chain = new Set<Error>()
  for (let inner = error; inner instanceof Error && !chain.has(inner); inner = inner.cause) {
    chain.add(inner)
  }
  const failures = [...chain].filter((failure) => !(failure instanceof AgentError))
  return failures.every(hasStatus) && failures.some(saysTooLong)
}

function hasStatus(failure: Error): boolean {
  const { status, statusCode = status, $metadata } = failure as Failure
  const http = statusCode ?? $metadata?.httpStatusCode
  return http === undefined || STATUSES.includes(Number(http))
}

function saysTooLong(failure: Error): boolean {
  if (failure.name === 'ContextWindowOverflowError') return true
  const { name, message, code, type, error, responseBody } = failure as Failure
  const texts = [name, message, code, type, responseBody, jsonOf(error)]
  return texts.some((text) => {
    if (typeof text !== 'string') return false
    return TOO_LONG.test(text.slice(0, MAX_TEXT)) || TOO_LONG.test(text.slice(-MAX_TEXT))
  })
}

function jsonOf(body: unknown): string {
  try {
    return typeof body === 'string' ? body : (JSON.stringify(body) ?? '')
  } catch {
    return ''
  }
}

/** Return the number of characters of all texts in messages. */
export function charsOf(value: unknown): number {
  if (typeof value === 'string') return value.length
  if (typeof value !== 'object' || value === null) return 0
  let count = 0
  for (const [name, item] of Object.entries(value)) {
    if (!BINARY.includes(name)) count += charsOf(item)
  }
  return count
}

/** Return the number of characters, as code points. */
export function countOf(text: string): number {
  return text.length - (text.match(/[\ud800-\udbff][\udc00-\udfff]/g)?.length ?? 0)
}

/** Return the first `count` characters, as code points. */
export function firstOf(text: string, count: number): string {
  const characters = Array.from(text.slice(0, 2 * count))
  return characters.slice(0, count).join('')
}

/** Return the end of a tool's result that is cut; `length` is that of the whole result. */
export function noteOfCut(length: number): string {
  return `… [cut: the result was ${length} characters long]` // as MARK reads it
}

/** Return the first characters of a tool's result, and how long it was. */
export function cutResult(text: string, size: number): string {
  const [, length = text.length] = MARK.exec(text) ?? []
  return text.slice(0, size).toWellFormed() + noteOfCut(Number(length))
}

/** Return the number of characters of a tool's result, without the note that it was cut. */
export function lengthOf(text: string): number {
  return text.replace(MARK, '').length
}

/** The text of a tool's result, of which `cut` keeps the first `size` characters. */
export interface CuttableResult {
  size: number
  readonly cut: (size: number) => void
}

/** Makes the requests of one turn shorter when its model refuses them for their length. */
export class Shortening {
  readonly session: Session
  readonly #turn: Turn
  #tries = 0

  constructor(session: Session, turn: Turn) {
    this.session = session
    this.#turn = turn
  }

  /** Whether a request of this turn was too long. */
  get isNeeded(): boolean {
    return this.#tries > 0
  }

  /**
   * Shorten the history; if none is left, the results of this turn's tools.
   *
   * Return false if the error is another one. Throws AgentError `prompt_too_long`.
   */
  async shorten(error: unknown, results: CuttableResult[]): Promise<boolean> {
    if (!isTooLong(error)) return false
    const { session } = this
    this.#tries += 1
    const history = charsOf(session.data.messages.slice(0, session.start.at))
    // Later tries are for the results, if these take more room.
    const isSmall = this.#tries > 2 && history <= totalOf(results)
    if (this.#tries > MAX_TRIES) this.#refuse(error)
    if (session.turns.length > 0) await session.reduce(this.#turn, isSmall)
    else if (!halve(results)) {
      if (session.start.at === 0) this.#refuse(error)
      await session.reduce(this.#turn)
    }
    return true
  }

  /** Log what became of the history, if a request was too long. */
  report(): void {
    if (!this.isNeeded) return
    const count = this.session.start.at
    const what = `the history was shortened to ${count} messages`
    log('WARNING', `model: the request was too long; ${what}`)
  }

  #refuse(cause: unknown): never {
    throw new AgentError('prompt_too_long', '', '', { cause })
  }
}

/** Cut the largest results to half until all together are half as long; false if none is long. */
function halve(results: CuttableResult[]): boolean {
  const goal = totalOf(results) / 2
  const cut = new Set<CuttableResult>()
  while (totalOf(results) > goal) {
    const [largest] = results.toSorted((one, other) => other.size - one.size)
    if (!largest || largest.size < MIN_RESULT) break
    largest.size = Math.floor(largest.size / 2)
    cut.add(largest)
  }
  for (const result of cut) result.cut(result.size)
  return cut.size > 0
}

function totalOf(results: CuttableResult[]): number {
  return results.reduce((total, { size }) => total + size, 0)
}
