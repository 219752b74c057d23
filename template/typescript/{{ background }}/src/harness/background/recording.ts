// The recorded events of a turn, for any number of readers.

import { EventEmitter, once } from 'node:events'

import type { Format } from './failures.ts'

/** The size of events above the maximum, for readers that are slow: an image takes them time. */
export const HELD_BYTES = 2 ** 23
const LOST_NUMBER = 10 ** 15 - 1 // of `turn_lost`: the killed process may have sent unsaved events

/** The session and the form of a recorded turn. */
export interface Recorded {
  readonly turnId: string
  readonly sessionId: string
  readonly actor: string | null
  readonly format: Format
}

/** A reader, and the number of the event that it needs next. */
export interface Reader {
  readonly next: number
}

/**
 * The events of a turn, numbered from 1. Emits `change` after each change.
 *
 * Above `maxBytes`, the next event drops the oldest ones, but those that a reader or another
 * replica may still need only above HELD_BYTES more.
 */
export class Recording extends EventEmitter implements Recorded {
  readonly turnId: string
  readonly sessionId: string
  readonly actor: string | null
  readonly format: Format
  /** `closed`: this process no longer serves the events, but another process may. */
  state: 'running' | 'ended' | 'closed' = 'running'
  /** The `performance.now()` of the end. */
  endedAt = Infinity
  /** The number of the first event that is available. */
  first = 1
  /** The size of the available events in bytes. */
  size = 0
  readonly readers = new Set<Reader>()
  /** Other replicas have had time to read the events up to this number. */
  delivered = Infinity
  /** The last event, if the process that runs the turn has ended. */
  lost: string | null = null
  readonly #maxBytes: number
  #events: string[] = []

  constructor({ turnId, sessionId, actor, format }: Recorded, maxBytes: number) {
    super()
    this.setMaxListeners(0) // a listener for each reader
    this.turnId = turnId
    this.sessionId = sessionId
    this.actor = actor
    this.format = format
    this.#maxBytes = maxBytes
  }

  /** The number of the last event, or 0. */
  get last(): number {
    return this.first + this.#events.length - 1
  }

  /** The number of the last event of an ended turn, also if its process has ended. */
  get final(): number {
    return this.lost === null ? this.last : LOST_NUMBER
  }

  /** Add events, such as `data: "text"\n\n`. */
  append(...events: string[]): void {
    const needed = Math.min(this.delivered + 1, ...[...this.readers].map(({ next }) => next))
    let dropped = 0
    const maxBytes = () => this.#maxBytes + (this.first + dropped < needed ? 0 : HELD_BYTES)
    while (this.size > maxBytes()) {
      this.size -= Buffer.byteLength(this.#events[dropped]!)
      dropped++
    }
    this.#events.splice(0, dropped)
    this.first += dropped
    this.#events.push(...events)
    for (const event of events) this.size += Buffer.byteLength(event)
    this.emit('change')
  }

  /** Drop all events before this number; the recording continues with it. */
  skipTo(number: number): void {
    this.#events = []
    this.size = 0
    this.first = number
  }

  /** Set the final state. */
  end(state: 'ended' | 'closed' = 'ended'): void {
    this.state = state
    this.endedAt = performance.now()
    this.emit('change')
  }

  /** Mark the end of a turn whose process has ended; readers get this event after all others. */
  lose(event: string): void {
    this.lost = event
    this.end()
  }

  /**
   * Return the events from this number on, or undefined if the first of them was dropped.
   *
   * Returns at least one event if there is one, and about `maxBytes`.
   */
  read(number: number, maxBytes: number): string[] | undefined {
    if (number < this.first) return undefined
    const start = number - this.first
    let end = start
    for (let size = 0; end < this.#events.length && size < maxBytes; end++) {
      size += Buffer.byteLength(this.#events[end]!)
    }
    return this.#events.slice(start, end)
  }

  /** Wait for the next change, for at most `seconds`. */
  async wait(seconds: number): Promise<void> {
    const signal = AbortSignal.timeout(seconds * 1000)
    await once(this, 'change', { signal }).catch(() => {})
  }
}
