// When the second model takes over a call, and what the log says about it.

import type { Turn } from '../contract.ts'
import { describe, log } from '../log.ts'
import type { Runtime } from '../runtime.ts'

type Model = Runtime['model']

// Failures that may be temporary, as `describe` shows them.
const TEMPORARY = new RegExp(
  'HTTP (408|409|429|5\\d\\d)|[Tt]hrottl|[Tt]imeout|TIMEDOUT|[Uu]navailable|internalServer' +
    '|NotReady|ECONN|EPIPE|ENOTFOUND|EAI_AGAIN|UND_ERR_SOCKET|APIConnectionError',
)
// After the answer has begun, or where this process ended the call, it is none of them.
const LASTING = /AgentError|AbortError|HTTP 200/

const LATE = new DOMException('The first byte did not come in time.', 'TimeoutError')

/** Whether a failure may be temporary. */
export function isTemporary(error: unknown): boolean {
  const why = describe(error)
  return TEMPORARY.test(why) && !LASTING.test(why)
}

/** The second model, for the calls of one turn. The first one has `seconds` for its first byte. */
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

  /** Call a function with a signal that is aborted unless it ends in that time; then it fails. */
  async inTime<T>(begin: (late: AbortSignal) => Promise<T>): Promise<T> {
    const late = new AbortController()
    const timer = setTimeout(() => late.abort(LATE), this.seconds * 1000)
    const { promise, reject } = Promise.withResolvers<never>()
    late.signal.addEventListener('abort', () => reject(LATE))
    try {
      return await Promise.race([begin(late.signal), promise])
    } finally {
      clearTimeout(timer)
    }
  }

  /** Return the second model, or throw the error if it is not a temporary one. */
  async takeOver(error: unknown): Promise<Model> {
    if (!isTemporary(error) || this.#turn.signal.aborted) throw error
    const what = `session ${this.#turn.sessionId}: MODEL failed, calling MODEL_FALLBACK`
    log('WARNING', `${what}: ${describe(error)}`)
    return this.#build()
  }

  /** Note for the log line of the turn that the second model answers. */
  answers(): void {
    this.#turn.detail = `answered by ${this.#name}`
  }
}
