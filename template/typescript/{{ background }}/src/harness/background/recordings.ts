// The recordings of this process: of running turns, and for EVENT_SECONDS of ended turns.

import { LRUCache } from 'lru-cache'

import { HELD_BYTES, type Recording } from './recording.ts'
import type { BackgroundSettings } from './settings.ts'

const KEPT_TURNS = 16 // the ended turns keep as many times MAX_EVENT_BYTES, and HELD_BYTES
const OVERHEAD = 1024 // bytes of a recording without events

/** The recordings that all replicas share. */
export interface Shared {
  /** Copy a running recording until it ends; resolve when other replicas can find it. */
  publish(recording: Recording): Promise<void>
  /**
   * Return the recording of the actor's newest turn in a session, or undefined.
   *
   * A recording of this process also counts until all its events are in the store.
   *
   * Throws AgentError: `session_forbidden` if only other actors have recordings,
   * `store_unavailable`, or `draining`.
   */
  newest(sessionId: string, actor: string | null): Promise<Recording | undefined>
  /**
   * Ask the replicas to stop the actor's turns in a session; return whether any runs.
   *
   * Throws AgentError `store_unavailable`.
   */
  stop(sessionId: string, actor: string | null): Promise<boolean>
  /** Drop the recordings of a session. */
  forget(sessionId: string): void
}

type Limits = Pick<BackgroundSettings, 'maxEventBytes' | 'eventSeconds'>

/** The newest recording of each session and actor. */
export class Recordings {
  readonly #running = new Map<string, Recording>()
  readonly #ended: LRUCache<string, Recording>

  constructor({ maxEventBytes, eventSeconds }: Limits) {
    this.#ended = new LRUCache({
      maxSize: KEPT_TURNS * maxEventBytes + HELD_BYTES,
      sizeCalculation: ({ size }) => size + OVERHEAD,
      ttl: eventSeconds * 1000,
    })
  }

  /** Add the recording of a newer turn, and keep it for some time after its end. */
  add(recording: Recording): void {
    const key = keyOf(recording.sessionId, recording.actor)
    this.#ended.delete(key)
    this.#running.set(key, recording)
    const keep = () => {
      if (recording.state === 'running') return
      recording.off('change', keep)
      if (this.#running.get(key) !== recording) return // a newer turn has replaced it
      this.#running.delete(key)
      this.#ended.set(key, recording)
    }
    recording.on('change', keep)
    keep()
  }

  /** Return the recording of the actor's newest turn in a session. */
  find(sessionId: string, actor: string | null): Recording | undefined {
    const key = keyOf(sessionId, actor)
    return this.#running.get(key) ?? this.#ended.get(key)
  }

  /** Whether there is a recording of a session, of any actor. */
  has(sessionId: string): boolean {
    const recordings = [...this.#running.values(), ...this.#ended.values()]
    return recordings.some((recording) => recording.sessionId === sessionId)
  }

  /** Drop the recordings that have expired. */
  purge(): void {
    this.#ended.purgeStale()
  }

  /** Drop the recordings of the ended turns of a session. */
  forget(sessionId: string): void {
    for (const [key, recording] of this.#ended.entries()) {
      if (recording.sessionId === sessionId) this.#ended.delete(key)
    }
  }
}

function keyOf(sessionId: string, actor: string | null): string {
  return `${sessionId} ${actor ?? ''}` // neither contains a space
}
