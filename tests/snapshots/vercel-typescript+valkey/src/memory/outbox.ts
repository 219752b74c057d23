// Work that waits to be done beside the turns: in order, again until it succeeds, and bounded.

import { AsyncLocalStorage } from 'node:async_hooks'
import { setTimeout as sleep } from 'node:timers/promises'

import { describe, log } from '../contract.ts'
import { Unavailable } from './backends.ts'
import { Refused } from './errors.ts'

const [TURNS, BYTES] = [1000, 16_777_216] // that may wait
// In seconds: the pauses between attempts, one attempt, and all of them for one piece of work.
const [FIRST_PAUSE, LONGEST_PAUSE, ATTEMPT, LONGEST] = [0.5, 30, 30, 600]
const OUTSIDE = AsyncLocalStorage.snapshot()
const [CLOSING_PAUSE, CLOSING_ATTEMPT] = [0.2, 2]

/** What a turn left to do: `what` is for the one who takes it, `size` its bytes of text. */
export interface Waiting<T> {
  readonly what: T
  readonly size: number
}

/** What is tried as a whole, and again; `turns` are in it. */
export interface Work {
  /** After `stop` is aborted nobody waits for it, and another attempt may run. */
  readonly attempt: (stop: AbortSignal) => Promise<unknown>
  readonly turns: number
}

/** Does one piece of work at a time. Nobody waits for it, and nothing fails by it. */
export class Outbox<T> {
  readonly name: string
  readonly #take: (waiting: Waiting<T>[]) => Work
  readonly #waiting: Waiting<T>[] = []
  // Not in the context of a turn, which would keep its session in memory.
  readonly #begin = () => OUTSIDE(() => this.#run())
  #size = 0
  #work: Work | null = null // that is tried
  #why = '' // its last attempt failed
  #task: Promise<void> | null = null
  #stop = new AbortController() // of the present attempt or pause
  #isPausing = false
  #state: 'open' | 'closing' | 'closed' = 'open'

  /** `take` makes work of the first that waits, and of more; it removes what it took. */
  constructor(name: string, take: (waiting: Waiting<T>[]) => Work) {
    this.name = name
    this.#take = take
  }

  /** Whether something is still to be done. */
  get isWaiting(): boolean {
    return this.#task !== null
  }

  /** Take what is to be done, and begin. */
  put(waiting: Waiting<T>): void {
    if (this.#state === 'closed') return this.#lose(1, 'the process ends')
    this.#waiting.push(waiting)
    this.#size += waiting.size
    let dropped = 0
    for (; this.#waiting.length > TURNS || this.#size > BYTES; dropped++) {
      this.#size -= this.#waiting.shift()?.size ?? 0
    }
    this.#lose(dropped, 'too many wait')
    this.#task ??= this.#begin()
  }

  /** Do what waits within this time; what cannot be done is lost, and the log says so. */
  async close(seconds: number): Promise<void> {
    this.#state = 'closing'
    if (this.#isPausing) this.#stop.abort()
    const [attempt, done] = [this.#stop, new AbortController()]
    const after = (time: number) =>
      sleep(time * 1000, null, { signal: done.signal }).catch(() => {})
    void after(CLOSING_ATTEMPT).then(() => attempt.abort()) // it may hang
    if (this.#task) await Promise.race([this.#task, after(seconds)])
    done.abort()
    this.#state = 'closed'
    const lost = this.#waiting.splice(0).length + (this.#work?.turns ?? 0)
    this.#stop.abort()
    await this.#task
    this.#lose(lost, this.#why || 'the process ends')
  }

  async #run(): Promise<void> {
    while (this.#waiting.length > 0) {
      const work = this.#take(this.#waiting)
      this.#work = work
      this.#size = this.#waiting.reduce((size, one) => size + one.size, 0)
      const why = await this.#do(work)
      if (why && this.#state !== 'closed') this.#lose(work.turns, why)
      this.#work = null
    }
    this.#task = null
  }

  /** Try until it is done, or is not to be; return why not. */
  async #do(work: Work): Promise<string> {
    const since = performance.now()
    for (let pause = FIRST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      const error = await this.#attempt(work)
      if (error === null) return ''
      const why = error instanceof Unavailable ? error.message : describe(error)
      if (!this.#isClosed) this.#why = why
      if (error instanceof Refused || this.#state === 'closed') return why
      const isOpen = this.#state === 'open'
      const delay = isOpen ? pause * (0.5 + Math.random() / 2) : CLOSING_PAUSE
      if ((performance.now() - since) / 1000 + delay > LONGEST) return why
      this.#stop = new AbortController()
      this.#isPausing = true
      // Only a close may keep the process from its end.
      await sleep(delay * 1000, null, { signal: this.#stop.signal, ref: false }).catch(() => {})
      this.#isPausing = false
      if (this.#isClosed) return why
    }
  }

  /** Why it failed, or null. */
  async #attempt(work: Work): Promise<unknown> {
    const [own, late] = [new AbortController(), Promise.withResolvers<never>()]
    this.#stop = own
    own.signal.addEventListener('abort', () => late.reject(new Unavailable('no answer in time')))
    const seconds = this.#state === 'open' ? ATTEMPT : CLOSING_ATTEMPT
    const timer = setTimeout(() => own.abort(), seconds * 1000).unref()
    try {
      await Promise.race([work.attempt(own.signal), late.promise])
      return null
    } catch (error) {
      return error ?? new Error()
    } finally {
      clearTimeout(timer)
      own.abort() // ends what is left of it
    }
  }

  get #isClosed(): boolean {
    return this.#state === 'closed'
  }

  #lose(turns: number, why: string): void {
    if (turns > 0) log('ERROR', `${this.name}: turns not recorded: ${turns} (${why})`)
  }
}
