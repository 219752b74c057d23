// Work that is done outside the turns: in order, retried until it succeeds, and bounded.

import { AsyncLocalStorage } from 'node:async_hooks'
import { setTimeout as sleep } from 'node:timers/promises'

import pRetry, { type Options } from 'p-retry'

import { describe, log } from '../log.ts'
import { bounded, describeFailure, MemoryRefused, MemoryUnavailable } from './base.ts'

export const [MAX_TURNS, MAX_BYTES] = [1000, 16_777_216] // that may wait
const MAX_WORK = 600_000 // milliseconds for all attempts

// How work is retried: while the process runs, and when it ends. In milliseconds.
const RUNNING = { minTimeout: 500, maxTimeout: 30_000, maxRetryTime: MAX_WORK, unref: true }
const CLOSING = { minTimeout: 200, factor: 1, maxRetryTime: MAX_WORK }
const [MAX_ATTEMPT, CLOSING_ATTEMPT] = [30_000, 2000]
const THREE_TIMES = { retries: 2, minTimeout: 500, factor: 4 }
/** Runs a function outside of the context of a turn. */
export const OUTSIDE = AsyncLocalStorage.snapshot()

/** What a turn left to do; `size` is its bytes of text. Those of a group belong together. */
export interface Waiting<T> {
  readonly what: T
  readonly size: number
  readonly group?: object
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
  readonly #closing = new AbortController() // ends pauses
  readonly #late = new AbortController() // ends the attempt that ran when the closing began
  readonly #closed = new AbortController() // ends everything
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
  put(...items: readonly Waiting<T>[]): void {
    if (this.#closed.signal.aborted) return this.#lose(items.length, 'the process ends')
    this.#waiting.push(...items)
    this.#size += items.reduce((size, one) => size + one.size, 0)
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
    this.#closing.abort()
    const done = new AbortController()
    const after = (time: number) => sleep(time, null, { signal: done.signal }).catch(() => {})
    void after(CLOSING_ATTEMPT).then(() => this.#late.abort())
    if (this.#task) await Promise.race([this.#task, after(seconds * 1000)])
    done.abort()
    const lost = this.#waiting.splice(0).length + (this.#work?.turns ?? 0)
    this.#closed.abort()
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
      [RUNNING, this.#closing],
      [CLOSING, this.#closed],
    ] as const) {
      if (signal.aborted) continue
      try {
        return await withRetries(attempt, (error) => !(error instanceof MemoryRefused), {
          ...options,
          signal,
          retries: Infinity,
          randomize: true,
          onFailedAttempt: ({ error }) => void (this.#why = describeFailure(error)),
        })
      } catch (error) {
        if (!signal.aborted) return this.#lose(work.turns, describeFailure(error))
      }
    }
  }

  async #attempt(work: Work): Promise<void> {
    const isClosing = this.#closing.signal.aborted
    const own = new AbortController()
    // AbortSignal.timeout would keep the attempt in memory until its time is over.
    const timer = setTimeout(() => own.abort(), isClosing ? CLOSING_ATTEMPT : MAX_ATTEMPT)
    const ends = [own.signal, this.#closed.signal]
    const stop = AbortSignal.any(isClosing ? ends : [...ends, this.#late.signal])
    try {
      await bounded(stop, 'no answer in time', () => work.attempt(stop))
    } catch (error) {
      // p-retry gives up at a TypeError.
      throw error instanceof MemoryUnavailable ? error : new MemoryUnavailable(describe(error))
    } finally {
      clearTimeout(timer)
      own.abort()
    }
  }

  #lose(turns: number, why: string): void {
    if (turns > 0) log('ERROR', `${this.name}: turns not recorded: ${turns} (${why})`)
  }
}

/** Whether the memory may succeed when it is asked again soon. */
function isTransient(error: unknown): boolean {
  return error instanceof MemoryUnavailable && error.isTransient
}

/** Return what `work` returns, now or after some attempts; throw its last error. */
export async function withRetries<T>(
  work: () => Promise<T>,
  isRetried: (error: unknown) => boolean = isTransient,
  options: Options = THREE_TIMES,
): Promise<T> {
  return await pRetry(work, { ...options, shouldRetry: ({ error }) => isRetried(error) })
}
