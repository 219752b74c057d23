// The rules for switching a call to the fallback model, and its log lines.

import { isBusy, type Turn } from '../contract.ts'
import { startTimer } from '../deadline.ts'
import { describe, log, TEMPORARY_KINDS } from '../log.ts'
import type { LanguageModel } from '../echo_model.ts'

type Model = LanguageModel

// Patterns of temporary failures: by status, otherwise by name.
const STATUS = /HTTP ([45]\d\d)/
const TEMPORARY_STATUS = /^(408|409|429|5\d\d)$/
const TEMPORARY = new RegExp(
  '[Tt]hrottl|[Tt]imeout|TIMEDOUT|[Uu]navailable|[Ii]nternalServer|NotReady' +
    `|\\b(${TEMPORARY_KINDS.join('|')})\\b`,
)
// Connection failures are temporary only before an answer.
const DISCONNECTED = /ECONN|EPIPE|ENOTFOUND|EAI_AGAIN|UND_ERR_SOCKET|APIConnectionError/
// Errors and aborts that this process caused.
const LASTING = /AgentError|AbortError|ContextWindowOverflow/

const LATE = new DOMException('No content arrived in time.', 'TimeoutError')
const REPLACED = new DOMException('The fallback model answers.', 'AbortError')

/** Return whether a failure may be temporary; `hasAnswered`: the model had begun an answer. */
function isTemporary(error: unknown, hasAnswered: boolean): boolean {
  const reason = describe(error)
  if (LASTING.test(reason)) return false
  if (isBusy(reason)) return true
  const [, status] = STATUS.exec(reason) ?? []
  if (status) return TEMPORARY_STATUS.test(status)
  return TEMPORARY.test(reason) || (!hasAnswered && DISCONNECTED.test(reason))
}

/** A call of the first model: `signal` ends it; `hasAnswered`: it has begun an answer. */
export interface FirstCall {
  readonly signal: AbortSignal
  hasAnswered: boolean
}

/**
 * Switches calls of one turn to the fallback model.
 *
 * The first model must send content (text, reasoning or a tool call) within `seconds`.
 * `turn.model` is `name` while the last answer comes from the fallback model.
 */
export class FallbackSwitch {
  readonly seconds: number
  readonly #turn: Turn
  readonly #name: string
  readonly #firstName: string
  readonly #build: () => Promise<Model>

  constructor(turn: Turn, name: string, build: () => Promise<Model>, seconds: number) {
    this.seconds = seconds
    this.#turn = turn
    this.#name = name
    this.#firstName = turn.model // '', unless another capability chose the first model
    this.#build = build
  }

  /**
   * Call the first model; `begin` returns when it has sent content.
   *
   * Return the result of `begin`, or undefined and the fallback model after aborting the first
   * call. Aborting `outer` aborts the first call too. Throws errors that are not temporary.
   */
  async replace<T>(
    outer: AbortSignal | undefined,
    begin: (call: FirstCall) => Promise<T>,
  ): Promise<[result: T, model: null] | [result: undefined, model: Model]> {
    const controller = new AbortController()
    const signal = outer ? AbortSignal.any([controller.signal, outer]) : controller.signal
    const call = { signal, hasAnswered: false }
    const { promise: late, reject } = Promise.withResolvers<never>()
    const stopTimer = startTimer(this.seconds, () => reject(LATE))
    try {
      const result = await Promise.race([begin(call), late])
      this.#turn.model = this.#firstName
      return [result, null]
    } catch (error) {
      controller.abort(REPLACED)
      return [undefined, await this.#switchModel(error, call.hasAnswered)]
    } finally {
      stopTimer()
    }
  }

  /** Return the fallback model, or throw the error if it is not temporary. */
  async #switchModel(error: unknown, hasAnswered: boolean): Promise<Model> {
    if (!isTemporary(error, hasAnswered) || this.#turn.signal.aborted) throw error
    const event = `session ${this.#turn.sessionId}: MODEL failed, calling MODEL_FALLBACK`
    log('WARNING', `${event}: ${describe(error)}`)
    return this.#build()
  }

  /** Record that the fallback model answers. */
  answers(): void {
    this.#turn.model = this.#name
  }
}
