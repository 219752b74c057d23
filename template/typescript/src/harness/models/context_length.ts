// Recognizes requests that are too long for the model, and shortens them.

import { AgentError, type Turn } from '../contract.ts'
import { causesOf, describe, log } from '../log.ts'

const MAX_TRIES = 6 // per turn
const MIN_RESULT = 500 // characters of a tool's result that is never cut
const MIN_PROMPT = 1000 // characters of a prompt that may be too long
const RESULTS_TOO_LONG = 'The tool results are too long for the model. Ask for less at a time.'
const OWN_TOO_LONG = 'The system prompt and the tools are too long for the model. Shorten them.'

// Error texts about long requests of OpenAI, Azure, Groq, Mistral, Anthropic, Bedrock, Gemini,
// vLLM, llama.cpp and xAI.
const TOO_LONG = new RegExp(
  'context_length_exceeded|maximum context length|reduce the length of the messages' +
    '|exceeds? the context window|input tokens exceed the configured limit' +
    '|prompt is too long|exceed context limit|request_too_large' +
    '|input is too long for requested model|too many input tokens|too many total text bytes' +
    '|exceeds the maximum number of tokens|longer than the maximum model length' +
    '|exceed_context_size_error|exceeds the available context size|maximum prompt length is',
  'i',
)
// Token rate limits, for which Strands throws the same error.
const AT_LIMIT = /rate[ _-]?limit|\bper (sec|min|hour|day|month)/i
// HTTP statuses of these errors. An error in a stream has no status or the status of the stream;
// SDKs may also report 500 or 502.
const STATUSES = [200, 400, 413, 422, 500, 502]
const MAX_TEXT = 4000 // characters read at the start and the end of an error
const MARK = /… \[cut: the result was (\d+) characters long\]$/
// Fields with the bytes of files.
const BINARY = ['bytes', 'data', 'image']

type Failure = Error & Record<string, unknown> & { $metadata?: { httpStatusCode?: number } }

/** Whether a model rejected a request because of its length. */
export function isTooLong(error: unknown): boolean {
  const failures = causesOf(error).filter((failure) => !(failure instanceof AgentError))
  if (!failures.every((failure) => hasStatus(failure, STATUSES))) return false
  if (failures.some((failure) => says(AT_LIMIT, failure))) return false
  const isKnown = failures.some(({ name }) => name === 'ContextWindowOverflowError')
  return isKnown || failures.some((failure) => says(TOO_LONG, failure))
}

/** Whether a client's error has one of these HTTP statuses, or no status. */
export function hasStatus(failure: Error, statuses: readonly number[]): boolean {
  const { status, statusCode = status, $metadata } = failure as Failure
  const http = statusCode ?? $metadata?.httpStatusCode
  return http === undefined || statuses.includes(Number(http))
}

/** Whether a text of a client's error contains `what`. */
export function says(what: RegExp, failure: Error): boolean {
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

/** Return the number of characters in all strings of a value, without the bytes of files. */
export function charsOf(value: unknown): number {
  if (typeof value === 'string') return value.length
  if (typeof value !== 'object' || value === null) return 0
  let count = 0
  for (const [name, item] of Object.entries(value)) {
    if (!BINARY.includes(name)) count += charsOf(item)
  }
  return count
}

/** Return the number of code points. */
function countOf(text: string): number {
  return text.length - (text.match(/[\ud800-\udbff][\udc00-\udfff]/g)?.length ?? 0)
}

/** Return the first `count` code points. */
function firstOf(text: string, count: number): string {
  const characters = Array.from(text.slice(0, 2 * count))
  return characters.slice(0, count).join('')
}

/** Cut a tool's result to `size` characters and append its length. */
export function cutResult(text: string, size: number): string {
  const [, length = countOf(text)] = MARK.exec(text) ?? []
  return firstOf(text, size) + noteOfCut(Number(length))
}

/** Cut the texts of a tool's result to `maxChars` characters in total. */
export function cutTexts(texts: string[], maxChars: number): string[] {
  const text = texts.join('')
  if (text.length <= maxChars) return texts
  const size = countOf(text)
  if (size <= maxChars) return texts
  let left = maxChars - noteOfCut(size).length
  return texts.map((text) => {
    if (left <= 0) return ''
    const kept = firstOf(text, left)
    left -= countOf(text)
    return left <= 0 ? kept + noteOfCut(size) : kept
  })
}

/** Return the end of a cut result, which MARK matches. */
function noteOfCut(length: number): string {
  return `… [cut: the result was ${length} characters long]`
}

/** Return the original length of a tool's result, including an earlier cut. */
export function lengthOf(text: string): number {
  return countOf(text.replace(MARK, ''))
}

/** A tool's result of `size` characters; `cut` shortens it. */
export interface CuttableResult {
  /** The id of the call. */
  readonly id: string
  size: number
  readonly cut: (size: number) => void
}

/** The parts of a Stage that Shortening uses. */
interface History {
  readonly turn: Pick<Turn, 'prompt' | 'request'>
  readonly repeatedFiles: readonly unknown[]
  readonly data: { readonly messages: unknown[] }
  /** The earlier turns, and the index of the first message of the running turn. */
  readonly turns: readonly { readonly at: number }[]
  readonly at: number
  reduce(all?: boolean): Promise<void>
}

/** Shortens a turn's requests when the model rejects their length. */
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
   * Shorten the history; if there is no history, shorten the tool results of this turn.
   *
   * Return false if the error has another reason. Throws `prompt_too_long` if only the prompt is
   * left, or `model_failed` if the prompt is short.
   */
  async shorten(error: unknown, results: CuttableResult[]): Promise<boolean> {
    if (!isTooLong(error)) return false
    const { stage } = this
    this.#tries += 1
    const history = charsOf(stage.data.messages.slice(0, stage.at))
    // Later tries shorten the results, if they are longer than the history.
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
    await this.#reduce() // only a summary remains
    return true
  }

  /** Log the shortened parts of the requests. */
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

  /** Return a message about the longest part of the request, or '' for the prompt. */
  #reason(results: CuttableResult[]): string {
    const { repeatedFiles, turn } = this.stage
    const { length } = turn.prompt
    if (totalOf(results) > length) return RESULTS_TOO_LONG
    const hasFiles = turn.request.files.length + repeatedFiles.length > 0
    return length > MIN_PROMPT || hasFiles ? '' : OWN_TOO_LONG
  }

  get #summary(): string {
    const parts = ['the request was too long']
    const count = this.stage.at
    if (this.#isReduced) parts.push(`the history was shortened to ${count} messages`)
    if (this.#cutIds.size > 0) parts.push(`${this.#cutIds.size} tool results were cut`)
    return parts.join('; ')
  }
}

/** Halve the largest results until the total is halved; return the cut results. */
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
