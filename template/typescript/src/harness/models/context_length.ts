// A request that is too long for the model: how it is recognized, and how it becomes shorter.

import { AgentError, type Turn } from '../contract.ts'
import { causesOf, describe, log } from '../log.ts'

const MAX_TRIES = 6 // in one turn
const MIN_RESULT = 500 // characters of a tool's result that is not cut
const MIN_PROMPT = 1000 // characters of a prompt that may be the reason
const RESULTS_TOO_LONG =
  'The results of the tools are too long for the model. Ask for less at a time.'
const OWN_TOO_LONG = 'The system prompt and the tools of the agent are too long for the model.'

// What providers say about a request that is too long: OpenAI, Azure, Groq, Mistral, Anthropic,
// Bedrock, Gemini, vLLM, llama.cpp and xAI.
const TOO_LONG = new RegExp(
  'context_length_exceeded|maximum context length|reduce the length of the messages' +
    '|exceeds? the context window|input tokens exceed the configured limit' +
    '|prompt is too long|exceed context limit|request_too_large' +
    '|input is too long for requested model|too many input tokens|too many total text bytes' +
    '|exceeds the maximum number of tokens|longer than the maximum model length' +
    '|exceed_context_size_error|exceeds the available context size|maximum prompt length is',
  'i',
)
// A limit of tokens in a time, which a class of Strands takes for the same.
const AT_LIMIT = /rate[ _-]?limit|\bper (sec|min|hour|day|month)/i
// The statuses of such a refusal. In a stream it has none, that of the stream, or 500 or 502 where
// the client makes one up.
const STATUSES = [200, 400, 413, 422, 500, 502]
const MAX_TEXT = 4000 // characters of an error that are read, at its beginning and at its end
const MARK = /… \[cut: the result was (\d+) characters long\]$/
// Where messages hold the bytes of files, which are no text.
const BINARY = ['bytes', 'data', 'image']

type Failure = Error & Record<string, unknown> & { $metadata?: { httpStatusCode?: number } }

/** Whether a model refused a request because it is too long. */
export function isTooLong(error: unknown): boolean {
  const failures = causesOf(error).filter((failure) => !(failure instanceof AgentError))
  if (!failures.every(hasStatus) || failures.some((failure) => says(AT_LIMIT, failure))) {
    return false
  }
  const isKnown = failures.some(({ name }) => name === 'ContextWindowOverflowError')
  return isKnown || failures.some((failure) => says(TOO_LONG, failure))
}

function hasStatus(failure: Error): boolean {
  const { status, statusCode = status, $metadata } = failure as Failure
  const http = statusCode ?? $metadata?.httpStatusCode
  return http === undefined || STATUSES.includes(Number(http))
}

function says(what: RegExp, failure: Error): boolean {
  const { name, message, code, type, error, responseBody, data } = failure as Failure
  const texts = [name, message, code, type, responseBody, jsonOf(error), jsonOf(data)]
  return texts.some((text) => {
    if (typeof text !== 'string') return false
    return what.test(text.slice(0, MAX_TEXT)) || what.test(text.slice(-MAX_TEXT))
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
function countOf(text: string): number {
  return text.length - (text.match(/[\ud800-\udbff][\udc00-\udfff]/g)?.length ?? 0)
}

/** Return the first `count` characters, as code points. */
function firstOf(text: string, count: number): string {
  const characters = Array.from(text.slice(0, 2 * count))
  return characters.slice(0, count).join('')
}

/** Return the first characters of a tool's result, and how long it was. */
export function cutResult(text: string, size: number): string {
  const [, length = countOf(text)] = MARK.exec(text) ?? []
  return firstOf(text, size) + noteOfCut(Number(length))
}

/** Return the texts of a tool's result, cut to `most` characters together; '' for those behind. */
export function cutTexts(texts: string[], most: number): string[] {
  const text = texts.join('')
  if (text.length <= most) return texts
  const size = countOf(text)
  if (size <= most) return texts
  let left = most - noteOfCut(size).length
  return texts.map((text) => {
    if (left <= 0) return ''
    const kept = firstOf(text, left)
    left -= countOf(text)
    return left <= 0 ? kept + noteOfCut(size) : kept
  })
}

/** Return the end of a result that is cut, as MARK reads it. */
function noteOfCut(length: number): string {
  return `… [cut: the result was ${length} characters long]`
}

/** Return the number of characters of a tool's result, without the note that it was cut. */
export function lengthOf(text: string): number {
  return countOf(text.replace(MARK, ''))
}

/** The text of a tool's result, of which `cut` keeps the first `size` characters. */
export interface CuttableResult {
  /** The id of its call. */
  readonly id: string
  size: number
  readonly cut: (size: number) => void
}

/** The stage of a turn, as far as its requests need it. */
interface History {
  readonly turn: Pick<Turn, 'prompt'>
  readonly data: { readonly messages: unknown[] }
  /** The turns in front of the running one, and where that begins in the messages. */
  readonly turns: readonly { readonly at: number }[]
  readonly at: number
  reduce(all?: boolean): Promise<void>
}

/** Makes the requests of one turn shorter when its model refuses them for their length. */
export class Shortening {
  readonly stage: History
  readonly #cutIds = new Set<string>()
  #tries = 0
  #isReduced = false

  constructor(stage: History) {
    this.stage = stage
  }

  /** Whether a request of this turn was too long. */
  get isNeeded(): boolean {
    return this.#tries > 0
  }

  /**
   * Shorten the history; if none is left, the results of this turn's tools.
   *
   * Return false if the error is another one. If nothing is left to shorten, throws
   * `prompt_too_long`, or `model_failed` if the prompt is not the reason.
   */
  async shorten(error: unknown, results: CuttableResult[]): Promise<boolean> {
    if (!isTooLong(error)) return false
    const { stage } = this
    this.#tries += 1
    const history = charsOf(stage.data.messages.slice(0, stage.at))
    // Later tries are for the results, if these take more room.
    const isSmall = this.#tries > 2 && history <= totalOf(results)
    if (this.#tries > MAX_TRIES) throw this.#failure(error, results)
    if (stage.turns.length > 0) {
      await this.#reduce(isSmall)
      return true
    }
    const cut = halve(results)
    for (const { id } of cut) this.#cutIds.add(id)
    if (cut.length > 0) return true
    if (stage.at === 0) throw this.#failure(error, results)
    await this.#reduce() // only a summary is left
    return true
  }

  /** Log how a request that was too long became shorter. */
  report(): void {
    const isShorter = this.#isReduced || this.#cutIds.size > 0
    if (isShorter) log('WARNING', `model: ${this.#summary}`)
  }

  async #reduce(isSmall = false): Promise<void> {
    await this.stage.reduce(isSmall)
    this.#isReduced = true
  }

  #failure(error: unknown, results: CuttableResult[]): AgentError {
    const reason = this.#reason(results)
    const type = reason ? 'model_failed' : 'prompt_too_long'
    return new AgentError(type, reason, describe(error), { cause: error })
  }

  /** Return what is too long, or '' for the prompt: the rest of the request is not larger. */
  #reason(results: CuttableResult[]): string {
    const { length } = this.stage.turn.prompt
    if (totalOf(results) > length) return RESULTS_TOO_LONG
    return length > MIN_PROMPT ? '' : OWN_TOO_LONG
  }

  get #summary(): string {
    const parts = ['the request was too long']
    const count = this.stage.at
    if (this.#isReduced) parts.push(`the history was shortened to ${count} messages`)
    if (this.#cutIds.size > 0) parts.push(`${this.#cutIds.size} tool results were cut`)
    return parts.join('; ')
  }
}

/** Cut the largest results to half until all together are half as long; return those. */
function halve(results: CuttableResult[]): CuttableResult[] {
  const goal = totalOf(results) / 2
  const cut = new Set<CuttableResult>()
  while (totalOf(results) > goal) {
    const [largest] = results.toSorted((one, other) => other.size - one.size)
    if (!largest || largest.size < MIN_RESULT) break
    largest.size = Math.floor(largest.size / 2)
    cut.add(largest)
  }
  for (const result of cut) result.cut(result.size)
  return [...cut]
}

function totalOf(results: CuttableResult[]): number {
  return results.reduce((total, { size }) => total + size, 0)
}
