// The rules for switching a call to the fallback model, and its log lines.

import { isBusy, type Turn } from '../contract.ts'
import { startTimer } from '../deadline.ts'
import { describe, log, TEMPORARY_KINDS } from '../log.ts'
import type { LanguageModel } from '../echo_model.ts'

type Model = LanguageModel

// Failures that may be temporary, as `describe` shows them: by their status, or else their names.
const STATUS = /HTTP ([45]\d\d)/
const TEMPORARY_STATUS = /^(408|409|429|5\d\d)$/
const TEMPORARY = new RegExp(
  '[Tt]hrottl|[Tt]imeout|TIMEDOUT|[Uu]navailable|[Ii]nternalServer|NotReady' +
    `|\\b(${TEMPORARY_KINDS.join('|')})\\b`,
)
// Those of a connection, only until it answers.
const DISCONNECTED = /ECONN|EPIPE|ENOTFOUND|EAI_AGAIN|UND_ERR_SOCKET|APIConnectionError/
// What this process refused or ended.
const LASTING = /AgentError|AbortError|ContextWindowOverflow/

const LATE = new DOMException('The first content did not come in time.', 'TimeoutError')
const REPLACED = new DOMException('Another model answers.', 'AbortError')

/** Whether a failure may be temporary; `hasAnswered`: of a call whose answer had begun. */
function isTemporary(error: unknown, hasAnswered: boolean): boolean {
  const why = describe(error)
  if (LASTING.test(why)) return false
  if (isBusy(why)) return true
  const [, status] = STATUS.exec(why) ?? []
  if (status) return TEMPORARY_STATUS.test(status)
  return TEMPORARY.test(why) || (!hasAnswered && DISCONNECTED.test(why))
}

/** A call of the first model: `signal` ends it, and `hasAnswered` says that its answer began. */
export interface FirstCall {
  readonly signal: AbortSignal
  hasAnswered: boolean
}

/**
 * The second model, for the calls of one turn.
 *
 * The first model has `seconds` for its first content: text, reasoning or a tool call.
 */
export class Second {
  readonly seconds: number
  readonly #turn: Turn
  readonly #name: string
  readonly #build: () => Promise<Model>

  constructor(turn: Turn, name: string, build: () => Promise<Model>, seconds: number) {
    this.seconds = seconds
    this.#turn = turn
    this.#name = name
    this.#build = build
  }

  /**
   * Call the first model; `begin` returns when it has sent content.
   *
   * Return the result of `begin`, or undefined and the model that takes over: then the first call
   * has been aborted. Its signal also follows `outer`. Throws an error that is not temporary.
   */
  async replace<T>(
    outer: AbortSignal | undefined,
    begin: (call: FirstCall) => Promise<T>,
  ): Promise<[begun: T, model: null] | [begun: undefined, model: Model]> {
    const own = new AbortController()
    const signal = outer ? AbortSignal.any([own.signal, outer]) : own.signal
    const call = { signal, hasAnswered: false }
    const { promise: late, reject } = Promise.withResolvers<never>()
    const stopTimer = startTimer(this.seconds, () => reject(LATE))
    try {
      return [await Promise.race([begin(call), late]), null]
    } catch (error) {
      own.abort(REPLACED)
      return [undefined, await this.#takeOver(error, call.hasAnswered)]
    } finally {
      stopTimer()
    }
  }

  /** Return the second model, or throw the error if it is not a temporary one. */
  async #takeOver(error: unknown, hasAnswered: boolean): Promise<Model> {
    if (!isTemporary(error, hasAnswered) || this.#turn.signal.aborted) throw error
    const what = `session ${this.#turn.sessionId}: MODEL failed, calling MODEL_FALLBACK`
    log('WARNING', `${what}: ${describe(error)}`)
    return this.#build()
  }

  /** Note for the log line of the turn that the second model answers. */
  answers(): void {
    this.#turn.detail = `answered by ${this.#name}`
  }
}
