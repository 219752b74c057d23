// Background work: in order within a session, retried until it succeeds, and bounded.

import { AsyncLocalStorage } from 'node:async_hooks'
import { setTimeout as sleep } from 'node:timers/promises'

import pRetry, { type Options } from 'p-retry'

import { describe, log } from '../log.ts'
import { bounded, describeFailure, MemoryRefused, MemoryUnavailable } from './base.ts'
import type { Who } from './namespaces.ts'

export const [MAX_TURNS, MAX_BYTES] = [1000, 16_777_216] // of an actor that may wait
const MAX_LOAD = 4 // backlogs of that size that may wait in all
const [JOBS, SHARE] = [16, 8] // at once in all; at most for an actor, and for lanes that failed
const BACKLOG = 50 // waiting turns that the log reports, and then each doubling
const MAX_WORK = 600_000 // milliseconds for all attempts

// How work is retried: while the process runs, and when it ends. In milliseconds.
const RUNNING = { minTimeout: 500, maxTimeout: 30_000, unref: true }
const CLOSING = { minTimeout: 200, factor: 1 }
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

/** The work of one session, which runs in order. */
class Lane<T> {
  readonly actor: string
  readonly waiting: (Waiting<T> & { readonly number: number })[] = []
  work: Work | null = null // the job that is attempted
  workSize = 0
  began = 0 // its first attempt
  why = '' // of its last failure
  hasFailed = false
  patience = CLOSING_ATTEMPT // for an attempt while the process ends
  task: Promise<void> | null = null

  constructor(actor: string) {
    this.actor = actor
  }

  /** The turns that wait, and those of the job. */
  get turns(): number {
    return this.waiting.length + (this.work?.turns ?? 0)
  }

  /** The bytes of these turns. */
  get size(): number {
    return this.waiting.reduce((sum, { size }) => sum + size, this.workSize)
  }
}

type AnyLane = Pick<Lane<unknown>, 'actor' | 'hasFailed'>

/**
 * Admits attempts, first come, first served.
 *
 * Half of the slots are out of reach for one actor, and for lanes that failed: a failure delays
 * nobody else.
 */
class Slots {
  readonly #queue = new Map<AnyLane, () => void>()
  readonly #running = new Set<AnyLane>()

  /** Do the work of a lane in a slot. Throws MemoryUnavailable when `stop` is aborted first. */
  async run(lane: AnyLane, stop: AbortSignal, work: () => Promise<void>): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#queue.set(lane, resolve)
    this.#admit()
    try {
      await bounded(stop, 'the process ends', () => promise)
      await work()
    } finally {
      this.#queue.delete(lane)
      this.#running.delete(lane)
      this.#admit()
    }
  }

  #admit(): void {
    for (const [lane, start] of this.#queue) {
      if (!this.#hasSlot(lane)) continue
      this.#queue.delete(lane)
      this.#running.add(lane)
      start()
    }
  }

  #hasSlot(lane: AnyLane): boolean {
    const running = [...this.#running]
    if (running.length >= JOBS) return false
    if (running.filter(({ actor }) => actor === lane.actor).length >= SHARE) return false
    return !lane.hasFailed || running.filter(({ hasFailed }) => hasFailed).length < SHARE
  }
}

/**
 * Runs jobs in the background: those of a session in order, several sessions at once.
 *
 * No turn waits for it or fails by it.
 */
export class RetryQueue<T> {
  readonly name: string
  readonly #take: (waiting: Waiting<T>[]) => Work
  readonly #lanes = new Map<string, Lane<T>>()
  readonly #slots = new Slots()
  readonly #closing = new AbortController() // ends pauses
  readonly #late = new AbortController() // ends the attempts that ran when the closing began
  readonly #closed = new AbortController() // ends everything
  #reported = BACKLOG / 2 // waiting turns
  #number = 0 // of the last item

  /** `take` makes work of the first that waits in a session, and of more; it removes them. */
  constructor(name: string, take: (waiting: Waiting<T>[]) => Work) {
    this.name = name
    this.#take = take
  }

  /** How many turns are not done yet. */
  get turns(): number {
    return [...this.#lanes.values()].reduce((sum, lane) => sum + lane.turns, 0)
  }

  /** Whether something is still to be done. */
  get isWaiting(): boolean {
    return this.#lanes.size > 0
  }

  /** Add work to the lane of a session, and begin. */
  put(who: Who, ...items: readonly Waiting<T>[]): void {
    if (this.#closed.signal.aborted) return this.#lose(items.length, 'the process ends')
    const key = JSON.stringify([who.actor, who.sessionId])
    const lane = this.#lanes.get(key) ?? new Lane<T>(who.actor)
    this.#lanes.set(key, lane)
    lane.waiting.push(...items.map((item) => ({ ...item, number: this.#number++ })))
    this.#lose(this.#drop(who.actor), 'too many wait')
    // Not in the context of a turn, which would keep its session in memory.
    lane.task ??= OUTSIDE(() => this.#run(key, lane))
    const { turns } = this
    if (turns < 2 * this.#reported) return
    this.#reported = turns
    log('WARNING', `${this.name}: ${turns} turns wait to be recorded`)
  }

  /** Do what waits within this time; what cannot be done is lost, with a line in the log. */
  async close(seconds: number): Promise<void> {
    this.#closing.abort()
    const done = new AbortController()
    const after = (time: number) => sleep(time, null, { signal: done.signal }).catch(() => {})
    void after(CLOSING_ATTEMPT).then(() => this.#late.abort())
    let isLate = false
    const end = after(seconds * 1000).then(() => {
      isLate = true
    })
    while (this.isWaiting && !isLate) await Promise.race([this.#ended(), end])
    done.abort()
    const lost = new Map<string, number>()
    for (const lane of this.#lanes.values()) {
      const why = lane.why || 'the process ends'
      lost.set(why, (lost.get(why) ?? 0) + lane.turns)
      lane.waiting.length = 0
    }
    this.#closed.abort()
    await this.#ended()
    for (const [why, turns] of lost) this.#lose(turns, why)
  }

  async #ended(): Promise<void> {
    await Promise.all([...this.#lanes.values()].map(({ task }) => task))
  }

  async #run(key: string, lane: Lane<T>): Promise<void> {
    while (lane.waiting.length > 0) {
      lane.why = ''
      lane.began = performance.now()
      await this.#do(lane)
      lane.work = null
      lane.workSize = 0
    }
    this.#lanes.delete(key)
    if (this.turns < BACKLOG / 2) this.#reported = BACKLOG / 2
  }

  async #do(lane: Lane<T>): Promise<void> {
    let isDone = false
    const attempt = async () => {
      if (!isDone) await this.#slots.run(lane, this.#closed.signal, () => this.#attempt(lane))
      isDone = true
    }
    const isRetried = (error: unknown) =>
      !(error instanceof MemoryRefused) && performance.now() - lane.began < MAX_WORK
    for (const [options, { signal }] of [
      [RUNNING, this.#closing],
      [CLOSING, this.#closed],
    ] as const) {
      if (signal.aborted) continue
      try {
        await withRetries(attempt, isRetried, {
          ...options,
          signal,
          retries: Infinity,
          randomize: true,
          onFailedAttempt: ({ error }) => {
            lane.hasFailed = true
            lane.why = describeFailure(error)
          },
        })
        lane.hasFailed = false
        return
      } catch (error) {
        if (!signal.aborted) return this.#lose(lane.work?.turns ?? 0, describeFailure(error))
      }
    }
  }

  async #attempt(lane: Lane<T>): Promise<void> {
    if (!lane.work) {
      if (lane.waiting.length === 0) return // all were dropped
      const { size } = lane
      lane.work = this.#take(lane.waiting)
      lane.workSize = size - lane.size
      lane.began = performance.now()
    }
    const { work } = lane
    const isClosing = this.#closing.signal.aborted
    const own = new AbortController()
    // AbortSignal.timeout would keep the attempt in memory until its time is over.
    const timer = setTimeout(() => own.abort(), isClosing ? lane.patience : MAX_ATTEMPT)
    const ends = [own.signal, this.#closed.signal]
    const stop = AbortSignal.any(isClosing ? ends : [...ends, this.#late.signal])
    try {
      await bounded(stop, 'no answer in time', () => work.attempt(stop))
    } catch (error) {
      if (stop.aborted && this.#closing.signal.aborted) lane.patience *= 2 // slow, maybe not dead
      // p-retry gives up at a TypeError.
      throw error instanceof MemoryUnavailable ? error : new MemoryUnavailable(describe(error))
    } finally {
      clearTimeout(timer)
      own.abort()
    }
  }

  /**
   * Drop the oldest items beyond the limits, and return their number.
   *
   * Beyond the limit of all, the actor with the largest backlog loses some.
   */
  #drop(actor: string): number {
    const lanes = Map.groupBy(this.#lanes.values(), (lane) => lane.actor)
    const own = lanes.get(actor) ?? []
    let dropped = 0
    while (loadOf(own) > 1 && dropOldest(own)) dropped++
    while (loadOf([...this.#lanes.values()]) > MAX_LOAD) {
      const loads = [...lanes.values()].map((some) => ({ some, load: loadOf(some) }))
      const { some } = loads.reduce((most, one) => (one.load > most.load ? one : most))
      if (!dropOldest(some)) break
      dropped++
    }
    return dropped
  }

  #lose(turns: number, why: string): void {
    if (turns > 0) log('ERROR', `${this.name}: turns not recorded: ${turns} (${why})`)
  }
}

/** Return the work of lanes as a part of what an actor may have. */
function loadOf(lanes: readonly Lane<unknown>[]): number {
  const turns = lanes.reduce((sum, lane) => sum + lane.turns, 0)
  const size = lanes.reduce((sum, lane) => sum + lane.size, 0)
  return Math.max(turns / MAX_TURNS, size / MAX_BYTES)
}

/** Drop the oldest item that waits, if there is one. */
function dropOldest(lanes: readonly Lane<unknown>[]): boolean {
  const waiting = lanes.map((lane) => lane.waiting).filter(({ length }) => length > 0)
  const [first, ...more] = waiting
  if (!first) return false
  more.reduce((old, items) => (items[0]!.number < old[0]!.number ? items : old), first).shift()
  return true
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
