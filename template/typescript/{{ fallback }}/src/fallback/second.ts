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

/** Whether a failure may be temporary. */
export function isTemporary(error: unknown): boolean {
  const why = describe(error)
  return TEMPORARY.test(why) && !LASTING.test(why)
}

/** The second model, for the calls of one turn. */
export class Second {
  readonly #turn: Turn
  readonly #name: string
  readonly #build: () => Promise<Model>

  constructor(turn: Turn, name: string, build: () => Promise<Model>) {
    this.#turn = turn
    this.#name = name
    this.#build = build
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
