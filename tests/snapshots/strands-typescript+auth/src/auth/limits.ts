// How many turns and tokens an actor may use, per minute and per day of UTC.

import { LRUCache } from 'lru-cache'

import { log } from '../log.ts'
import type { AuthSettings } from './settings.ts'

const PERIODS = new Map([
  [60, 'minute'],
  [86_400, 'day'],
])
const MAX_COUNTERS = 100_000 // of one process; then those that were used least recently start again

type Kind = 'turns' | 'tokens'
/** What an actor has used up, and for how many seconds. */
type Used = [what: string, seconds: number]

/** The counters did not answer; the message says why, without secrets. */
export class CountersUnavailable extends Error {}

/** Numbers that grow, and are forgotten after some time. */
export interface Counters {
  /**
   * Add to a number, which is kept for so many seconds, and return it.
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

/** The limits of every actor. Without their counters, turns run all the same. */
export class Limits {
  counters: Counters = new InProcess()
  readonly #turns: readonly [seconds: number, most: number][]
  readonly #tokens: readonly [seconds: number, most: number][]

  constructor(settings: AuthSettings) {
    const limits = (minute: number, day: number) =>
      [...PERIODS.keys()]
        .map((seconds, at): [number, number] => [seconds, [minute, day][at]!])
        .filter(([, most]) => most > 0)
    this.#turns = limits(settings.actorTurnsPerMinute, settings.actorTurnsPerDay)
    this.#tokens = limits(settings.actorTokensPerMinute, settings.actorTokensPerDay)
  }

  /** Count a turn, or return what the actor has used up. */
  async begin(actor: string): Promise<Used | null> {
    const now = Date.now() / 1000
    for (const [seconds, most] of this.#tokens) {
      const sum = await this.#add(actor, 'tokens', 0, seconds, now)
      if (sum >= most) return used('tokens', most, seconds, now)
    }
    for (const [seconds, most] of this.#turns) {
      const sum = await this.#add(actor, 'turns', 1, seconds, now)
      if (sum > most) return used('turns', most, seconds, now)
    }
    return null
  }

  /** Count the tokens of a turn, also of one that failed. */
  async end(actor: string, tokens: number): Promise<void> {
    const now = Date.now() / 1000
    for (const [seconds] of tokens > 0 ? this.#tokens : []) {
      await this.#add(actor, 'tokens', tokens, seconds, now)
    }
  }

  async #add(
    actor: string,
    what: Kind,
    number: number,
    seconds: number,
    now: number,
  ): Promise<number> {
    const name = `${what}:${seconds}:${Math.floor(now / seconds)}:${actor}`
    try {
      return await this.counters.add(name, number, seconds)
    } catch (error) {
      if (!(error instanceof CountersUnavailable)) throw error
      log('WARNING', `an actor was not limited: ${error.message}`)
      return 0
    }
  }
}

function used(what: Kind, most: number, seconds: number, now: number): Used {
  return [`${most} ${what} per ${PERIODS.get(seconds)}`, Math.floor(seconds - (now % seconds)) + 1]
}
