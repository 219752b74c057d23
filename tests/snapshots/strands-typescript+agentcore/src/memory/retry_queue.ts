// Work that is done outside the turns: in order, retried until it succeeds, and bounded.

import { AsyncLocalStorage } from 'node:async_hooks'
import { setTimeout as sleep } from 'node:timers/promises'

import pRetry, { type Options } from 'p-retry'

import { describe, log } from '../contract.ts'
import { bounded, MemoryRefused, MemoryUnavailable, reasonOf } from './base.ts'

const [MAX_TURNS, MAX_BYTES] = [1000, 16_777_216] // that may wait
const MAX_WORK = 600_000 // milliseconds for all attempts

// How work is retried: while the process runs, and when it ends. In milliseconds.
const RUNNING = { minTimeout: 500, maxTimeout: 30_000, maxRetryTime: MAX_WORK, unref: true }
const ENDING = { minTimeout: 200, factor: 1, maxRetryTime: MAX_WORK }
const [ATTEMPT, LAST_ATTEMPT] = [30_000, 2000]
const OUTSIDE = AsyncLocalStorage.snapshot()

/** What a turn left to do; `size` is its bytes of text. */
export interface Waiting<T> {
  readonly what: T
  readonly size: number
}

/** What is tried as a whole; after `stop` is aborted another attempt may run. */
export interface Work {
  readonly attempt: (stop: AbortSignal) => Promise<unknown>
  readonly turns: number
}

/** Does one piece of work at a time, in order. No turn waits for it or fails by it. */
export class RetryQueue<T> {
  readonly name: string
  readonly #take: (waiting: Waiting<T>[]) => Work
  readonly #waiting: Waiting<T>[] = []
  readonly #ending = new AbortController() // ends pauses
  readonly #late = new AbortController() // ends the attempt that ran when the ending began
  readonly #over = new AbortController() // ends everything
  #size = 0
  #work: Work | null = null // that is tried
  #why = '' // its last attempt failed
  #task: Promise<void> | null = null

  /** `take` makes work of the first that waits, and of more; it removes what it took. */
  constructor(name: string, take: (waiting: Waiting<T>[]) => Work) {
    this.name = name
    this.#take = take
  }

  /** Whether something is still to be done. */
  get isWaiting(): boolean {
    return this.#task !== null
  }

  /** Add what is to be done, and begin. */
  put(waiting: Waiting<T>): void {
    if (this.#over.signal.aborted) return this.#lose(1, 'the process ends')
    this.#waiting.push(waiting)
    this.#size += waiting.size
    let dropped = 0
    for (; this.#waiting.length > MAX_TURNS || this.#size > MAX_BYTES; dropped++) {
      this.#size -= this.#waiting.shift()?.size ?? 0
    }
    this.#lose(dropped, 'too many wait')
    // Not in the context of a turn, which would keep its session in memory.
    this.#task ??= OUTSIDE(() => this.#run())
  }

  /** Do what waits within this time; what cannot be done is lost, with a line in the log. */
  async close(seconds: number): Promise<void> {
    this.#ending.abort()
    const done = new AbortController()
    const after = (time: number) => sleep(time, null, { signal: done.signal }).catch(() => {})
    void after(LAST_ATTEMPT).then(() => this.#late.abort())
    if (this.#task) await Promise.race([this.#task, after(seconds * 1000)])
    done.abort()
    const lost = this.#waiting.splice(0).length + (this.#work?.turns ?? 0)
    this.#over.abort()
    await this.#task
    this.#lose(lost, this.#why || 'the process ends')
  }

  async #run(): Promise<void> {
    while (this.#waiting.length > 0) {
      this.#work = this.#take(this.#waiting)
      this.#why = ''
      this.#size = this.#waiting.reduce((size, one) => size + one.size, 0)
      await this.#do(this.#work)
      this.#work = null
    }
    this.#task = null
  }

  async #do(work: Work): Promise<void> {
    let isDone = false
    const attempt = async () => {
      if (!isDone) await this.#attempt(work)
      isDone = true
    }
    for (const [options, { signal }] of [
      [RUNNING, this.#ending],
      [ENDING, this.#over],
    ] as const) {
      if (signal.aborted) continue
      try {
        return await withRetries(attempt, {
          ...options,
          signal,
          retries: Infinity,
          randomize: true,
          onFailedAttempt: ({ error }) => void (this.#why = reasonOf(error)),
        })
      } catch (error) {
        if (!signal.aborted) return this.#lose(work.turns, reasonOf(error))
      }
    }
  }

  async #attempt(work: Work): Promise<void> {
    const isEnding = this.#ending.signal.aborted
    const own = new AbortController()
    const limit = AbortSignal.timeout(isEnding ? LAST_ATTEMPT : ATTEMPT)
    const ends = [limit, own.signal, this.#over.signal]
    const stop = AbortSignal.any(isEnding ? ends : [...ends, this.#late.signal])
    try {
      await bounded(stop, 'no answer in time', () => work.attempt(stop))
    } finally {
      own.abort()
    }
  }

  #lose(turns: number, why: string): void {
    if (turns > 0) log('ERROR', `${this.name}: turns not recorded: ${turns} (${why})`)
  }
}

/** Do the work, and again after a failure. Throws MemoryUnavailable, or why `signal` aborted. */
export async function withRetries<T>(work: () => Promise<T>, options: Options): Promise<T> {
  const attempt = async () => {
    try {
      return await work()
    } catch (error) {
      if (error instanceof MemoryUnavailable) throw error
      throw new MemoryUnavailable(describe(error), { cause: error })
    }
  }
  return await pRetry(attempt, {
    ...options,
    shouldRetry: ({ error }) => !(error instanceof MemoryRefused),
  })
}
