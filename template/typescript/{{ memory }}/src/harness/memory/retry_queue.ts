// A queue of background work: ordered within a session, with retries and limits.

import { AsyncLocalStorage } from 'node:async_hooks'
import { setTimeout as sleep } from 'node:timers/promises'

import pRetry, { type Options } from 'p-retry'

import { log } from '../log.ts'
import { bounded, locateFailure, MemoryRefused, MemoryUnavailable } from './base.ts'
import type { Who } from './namespaces.ts'

export const MAX_TURNS = 1000 // waiting turns per actor
export const MAX_BYTES = 16_777_216 // waiting bytes per actor
const MAX_LOAD = 4 // total backlog, in multiples of an actor's
const JOBS = 16 // concurrent jobs in total
const SHARE = 8 // concurrent jobs per actor, and for all failed lanes together
const BACKLOG = 50 // warn at this number of waiting turns, and again at each doubling
const MAX_WORK = 600_000 // milliseconds for all attempts

// Options of retries while the process runs, and while it ends. In milliseconds.
const RUNNING = { minTimeout: 500, maxTimeout: 30_000, unref: true }
const CLOSING = { minTimeout: 200, factor: 1 }
const MAX_ATTEMPT = 30_000
const CLOSING_ATTEMPT = 2000
const THREE_ATTEMPTS = { retries: 2, minTimeout: 500, factor: 4 }
/** Runs a function outside the context of a turn. */
export const outsideTurn = AsyncLocalStorage.snapshot()

/** An item of background work; `size` is in bytes. Items of a group belong together. */
export interface QueueItem<T> {
  readonly payload: T
  readonly size: number
  readonly group?: object
}

/** A job for `turns` turns, attempted as a whole. After `stop` aborts, another attempt may run. */
export interface Work {
  readonly attempt: (stop: AbortSignal) => Promise<unknown>
  readonly turns: number
}

/** The work of one session, which runs in order. */
class Lane<T> {
  readonly actor: string
  readonly waiting: (QueueItem<T> & { readonly number: number })[] = []
  work: Work | null = null // the current job
  workSize = 0
  startedAt = 0 // when its first attempt started
  reason = '' // the reason for its last failure
  hasFailed = false
  patience = CLOSING_ATTEMPT // time limit of an attempt while the process ends
  task: Promise<void> | null = null

  constructor(actor: string) {
    this.actor = actor
  }

  /** The number of waiting turns and turns of the job. */
  get turns(): number {
    return this.waiting.length + (this.work?.turns ?? 0)
  }

  /** The size of these turns in bytes. */
  get size(): number {
    return this.waiting.reduce((sum, { size }) => sum + size, this.workSize)
  }
}

type AnyLane = Pick<Lane<unknown>, 'actor' | 'hasFailed'>

/**
 * Admits attempts, first come, first served.
 *
 * Each actor gets at most half of the slots. All failed lanes together also get at most half, so
 * that a failure does not delay other actors.
 */
class Slots {
  readonly #queue = new Map<AnyLane, () => void>()
  readonly #running = new Set<AnyLane>()

  /** Do a lane's work in a slot. Throws MemoryUnavailable if `stop` aborts before it starts. */
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
 * Runs jobs in the background: in order within a session, several sessions at once.
 *
 * Callers neither wait nor receive errors.
 */
export class RetryQueue<T> {
  readonly name: string
  readonly #take: (waiting: QueueItem<T>[]) => Work
  readonly #lanes = new Map<string, Lane<T>>()
  readonly #slots = new Slots()
  readonly #closing = new AbortController() // ends pauses
  readonly #late = new AbortController() // ends attempts that started before `close`
  readonly #closed = new AbortController() // ends everything
  #reported = BACKLOG / 2 // waiting turns in the last report
  #number = 0 // the number of the next item

  /** Create a queue; `take` removes waiting items of a session and turns them into a job. */
  constructor(name: string, take: (waiting: QueueItem<T>[]) => Work) {
    this.name = name
    this.#take = take
  }

  /** The number of unfinished turns. */
  get turns(): number {
    return [...this.#lanes.values()].reduce((sum, lane) => sum + lane.turns, 0)
  }

  /** Whether any work is unfinished. */
  get isWaiting(): boolean {
    return this.#lanes.size > 0
  }

  /** Add items to the lane of a session, and start the lane. */
  put(identity: Who, ...items: readonly QueueItem<T>[]): void {
    if (this.#closed.signal.aborted) return this.#reportLost(items.length, 'the process ends')
    const key = JSON.stringify([identity.actor, identity.sessionId])
    const lane = this.#lanes.get(key) ?? new Lane<T>(identity.actor)
    this.#lanes.set(key, lane)
    lane.waiting.push(...items.map((item) => ({ ...item, number: this.#number++ })))
    this.#reportLost(this.#drop(identity.actor), 'the queue is full')
    // Outside the turn's context, which would keep its session in memory.
    lane.task ??= outsideTurn(() => this.#run(key, lane))
    const { turns } = this
    if (turns < 2 * this.#reported) return
    this.#reported = turns
    log('WARNING', `${this.name}: ${turns} turns are waiting to be recorded`)
  }

  /** Finish within `seconds`, without long pauses; the log reports lost turns. */
  async close(seconds: number): Promise<void> {
    this.#closing.abort()
    const finished = new AbortController()
    const after = (time: number) => sleep(time, null, { signal: finished.signal }).catch(() => {})
    void after(CLOSING_ATTEMPT).then(() => this.#late.abort())
    let isTimeUp = false
    const end = after(seconds * 1000).then(() => {
      isTimeUp = true
    })
    while (this.isWaiting && !isTimeUp) await Promise.race([this.#ended(), end])
    finished.abort()
    const lost = new Map<string, number>()
    for (const lane of this.#lanes.values()) {
      const reason = lane.reason || 'the process ends'
      lost.set(reason, (lost.get(reason) ?? 0) + lane.turns)
      lane.waiting.length = 0
    }
    this.#closed.abort()
    await this.#ended()
    for (const [reason, turns] of lost) this.#reportLost(turns, reason)
  }

  async #ended(): Promise<void> {
    await Promise.all([...this.#lanes.values()].map(({ task }) => task))
  }

  async #run(key: string, lane: Lane<T>): Promise<void> {
    while (lane.waiting.length > 0) {
      lane.reason = ''
      lane.startedAt = performance.now()
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
      !(error instanceof MemoryRefused) && performance.now() - lane.startedAt < MAX_WORK
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
            lane.reason = locateFailure(error)
          },
        })
        lane.hasFailed = false
        return
      } catch (error) {
        if (!signal.aborted) return this.#reportLost(lane.work?.turns ?? 0, locateFailure(error))
      }
    }
  }

  async #attempt(lane: Lane<T>): Promise<void> {
    if (!lane.work) {
      if (lane.waiting.length === 0) return // all were dropped
      const { size } = lane
      lane.work = this.#take(lane.waiting)
      lane.workSize = size - lane.size
      lane.startedAt = performance.now()
    }
    const { work } = lane
    const isClosing = this.#closing.signal.aborted
    const timeout = new AbortController()
    // AbortSignal.timeout would keep the attempt in memory until the timeout.
    const timer = setTimeout(() => timeout.abort(), isClosing ? lane.patience : MAX_ATTEMPT)
    const ends = [timeout.signal, this.#closed.signal]
    const stop = AbortSignal.any(isClosing ? ends : [...ends, this.#late.signal])
    try {
      await bounded(stop, 'no answer in time', () => work.attempt(stop))
    } catch (error) {
      if (stop.aborted && this.#closing.signal.aborted) lane.patience *= 2 // slow, not down
      // p-retry does not retry a TypeError.
      throw error instanceof MemoryUnavailable ? error : new MemoryUnavailable(locateFailure(error))
    } finally {
      clearTimeout(timer)
      timeout.abort()
    }
  }

  /**
   * Drop the oldest items beyond the limits; return the number of dropped items.
   *
   * Beyond the total limit, drop items of the actor with the largest backlog.
   */
  #drop(actor: string): number {
    const lanes = Map.groupBy(this.#lanes.values(), (lane) => lane.actor)
    const lanesOfActor = lanes.get(actor) ?? []
    let dropped = 0
    while (loadOf(lanesOfActor) > 1 && dropOldest(lanesOfActor)) dropped++
    while (loadOf([...this.#lanes.values()]) > MAX_LOAD) {
      const loads = [...lanes.values()].map((group) => ({ group, load: loadOf(group) }))
      const { group } = loads.reduce((max, next) => (next.load > max.load ? next : max))
      if (!dropOldest(group)) break
      dropped++
    }
    return dropped
  }

  #reportLost(turns: number, reason: string): void {
    if (turns > 0) log('ERROR', `${this.name}: turns not recorded: ${turns} (${reason})`)
  }
}

/** Return the backlog of lanes, relative to an actor's limit. */
function loadOf(lanes: readonly Lane<unknown>[]): number {
  const turns = lanes.reduce((sum, lane) => sum + lane.turns, 0)
  const size = lanes.reduce((sum, lane) => sum + lane.size, 0)
  return Math.max(turns / MAX_TURNS, size / MAX_BYTES)
}

/** Drop the oldest waiting item; return whether an item was dropped. */
function dropOldest(lanes: readonly Lane<unknown>[]): boolean {
  const queues = lanes.map((lane) => lane.waiting).filter(({ length }) => length > 0)
  const [first, ...more] = queues
  if (!first) return false
  more.reduce((old, items) => (items[0]!.number < old[0]!.number ? items : old), first).shift()
  return true
}

/** Whether a retry may succeed soon. */
function isTransient(error: unknown): boolean {
  return error instanceof MemoryUnavailable && error.isTransient
}

/** Return the result of `work`, with retries. Throws the last error. */
export async function withRetries<T>(
  work: () => Promise<T>,
  isRetried: (error: unknown) => boolean = isTransient,
  options: Options = THREE_ATTEMPTS,
): Promise<T> {
  return await pRetry(work, { ...options, shouldRetry: ({ error }) => isRetried(error) })
}
