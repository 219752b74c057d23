// Limits an actor's turns and tokens per minute and per UTC day.

import { LRUCache } from 'lru-cache'

import { AgentError, type Turn } from '../contract.ts'
import { log } from '../log.ts'
import type { AuthSettings } from './settings.ts'

const PERIODS = new Map([
  [60, 'minute'],
  [86_400, 'day'],
])
const MAX_COUNTERS = 100_000 // per process; above it, the least recently used counters restart

type Kind = 'turns' | 'tokens'

/** The counters did not answer. The message gives the reason, without secrets. */
export class CountersUnavailable extends Error {}

/** Counters that expire. */
export interface Counters {
  /**
   * Add to a counter that expires after `seconds`, and return its value.
   *
   * Throws CountersUnavailable.
   */
  add(name: string, number: number, seconds: number): Promise<number>
}

/** Counters of this process. */
class InProcess implements Counters {
  readonly #cache = new LRUCache<string, number>({ max: MAX_COUNTERS })

  async add(name: string, number: number, seconds: number): Promise<number> {
    const sum = (this.#cache.get(name) ?? 0) + number
    this.#cache.set(name, sum, { ttl: seconds * 1000 })
    return sum
  }
}

/** The limits of every actor. Fails open if the counters are unavailable. */
export class Limits {
  counters: Counters = new InProcess()
  /** The turns that have sent a request to a model. */
  readonly admitted = new WeakSet<Turn>()
  readonly #turns: readonly [seconds: number, maximum: number][]
  readonly #tokens: readonly [seconds: number, maximum: number][]

  constructor(settings: AuthSettings) {
    const limits = (minute: number, day: number) =>
      [...PERIODS.keys()]
        .map((seconds, index): [number, number] => [seconds, [minute, day][index]!])
        .filter(([, maximum]) => maximum > 0)
    this.#turns = limits(settings.actorTurnsPerMinute, settings.actorTurnsPerDay)
    this.#tokens = limits(settings.actorTokensPerMinute, settings.actorTokensPerDay)
  }

  /** Whether tokens are limited. */
  get hasTokens(): boolean {
    return this.#tokens.length > 0
  }

  /** Count a turn or a fork. Throws AgentError if the actor has reached a limit. */
  async begin(actor: string): Promise<void> {
    const now = Date.now() / 1000
    const error = await this.spend(actor, 0, now)
    if (error) throw error
    for (const [seconds, maximum] of this.#turns) {
      const sum = await this.#add(actor, 'turns', 1, seconds, now)
      if (sum > maximum) throw usedUp('turns', maximum, seconds, now)
    }
  }

  /**
   * Count tokens; return an error if the actor had already reached a limit.
   *
   * A negative number reverts tokens that were counted at the same time `now`, in seconds.
   */
  async spend(actor: string, tokens: number, now: number): Promise<AgentError | null> {
    let error: AgentError | null = null
    for (const [seconds, maximum] of this.#tokens) {
      const sum = await this.#add(actor, 'tokens', tokens, seconds, now)
      if (sum - tokens >= maximum) error ??= usedUp('tokens', maximum, seconds, now)
    }
    return error
  }

  async #add(
    actor: string,
    kind: Kind,
    number: number,
    seconds: number,
    now: number,
  ): Promise<number> {
    const name = `${kind}:${seconds}:${Math.floor(now / seconds)}:${actor}`
    try {
      return await this.counters.add(name, number, seconds)
    } catch (error) {
      if (!(error instanceof CountersUnavailable)) throw error
      log('WARNING', `limits were not applied to an actor: ${error.message}`)
      return 0
    }
  }
}

function usedUp(kind: Kind, maximum: number, seconds: number, now: number): AgentError {
  const limit = `${maximum} ${kind} per ${PERIODS.get(seconds)}`
  const error = new AgentError('rate_limited', `This actor has used up ${limit}.`)
  return Object.assign(error, { retryAfter: Math.floor(seconds - (now % seconds)) + 1 })
}
