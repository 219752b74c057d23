// The recordings of this process: those of running turns, and for some time those of ended turns.

import { LRUCache } from 'lru-cache'

import type { Recording } from './recording.ts'
import type { BackgroundSettings } from './settings.ts'

const ENDED = 16 // ended turns of the maximum size
const OVERHEAD = 1000 // bytes of a recording without events

type Limits = Pick<BackgroundSettings, 'maxEventBytes' | 'eventSeconds'>

/** The newest recording of each session and actor. */
export class Recordings {
  readonly #running = new Map<string, Recording>()
  readonly #ended: LRUCache<string, Recording>

  constructor({ maxEventBytes, eventSeconds }: Limits) {
    this.#ended = new LRUCache({
      maxSize: ENDED * (maxEventBytes + OVERHEAD),
      sizeCalculation: ({ bytes }) => bytes + OVERHEAD,
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
