// The tokens of model requests: estimated when a request is sent, then corrected by its usage.

import type { Turn } from '../contract.ts'
import type { Limits } from './limits.ts'

const CHARS_PER_TOKEN = 4

/** A request to a model and its response. */
export class Request {
  /** The number of characters sent and received. */
  chars: number
  /** The tokens that the provider reports; 0 means unknown. */
  usage = 0
  readonly #limits: Limits
  readonly #actor: string
  readonly #seconds = Date.now() / 1000
  #counted = 0

  constructor(limits: Limits, actor: string, chars: number) {
    this.#limits = limits
    this.#actor = actor
    this.chars = chars
  }

  /** Count the usage, or an estimate; return an error if a limit had already been reached. */
  count(): ReturnType<Limits['spend']> {
    return this.#count(this.usage || Math.floor(this.chars / CHARS_PER_TOKEN) + 1)
  }

  /** Revert the count of a request that is not sent. */
  async cancel(): Promise<void> {
    await this.#count(0)
  }

  #count(tokens: number): ReturnType<Limits['spend']> {
    const added = tokens - this.#counted
    this.#counted = tokens
    return this.#limits.spend(this.#actor, added, this.#seconds)
  }
}

/** Counts the requests of an actor. */
export class Meter {
  readonly #limits: Limits
  readonly #actor: string
  readonly #turn: Turn | undefined

  constructor(limits: Limits, actor: string, turn?: Turn) {
    this.#limits = limits
    this.#actor = actor
    this.#turn = turn
  }

  /**
   * Count a request of `chars` characters, and return it; call `count` at its end to correct it.
   *
   * Rejects the first request of a turn if the actor has no tokens left: another turn may have
   * used them since this turn began. Throws AgentError.
   */
  async begin(chars: number): Promise<Request> {
    const request = new Request(this.#limits, this.#actor, chars)
    const error = await request.count()
    const turn = this.#turn
    if (!turn) return request
    if (error && !this.#limits.admitted.has(turn)) {
      await request.cancel()
      throw error
    }
    this.#limits.admitted.add(turn)
    return request
  }
}
