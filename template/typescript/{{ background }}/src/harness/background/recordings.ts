// The recordings of this process: those of running turns, and for some time those of ended turns.

import { LRUCache } from 'lru-cache'

import type { Recording } from './recording.ts'
import type { BackgroundSettings } from './settings.ts'

const ENDED = 16 // ended turns of the maximum size
const OVERHEAD = 1000 // bytes of a recording without events

/** The recordings by session and actor: the newest turn replaces the ended turns before it. */
export class Recordings {
  readonly #running = new Set<Recording>()
  readonly #ended: LRUCache<string, Recording>

  constructor({ maxEventBytes, eventSeconds }: BackgroundSettings) {
    this.#ended = new LRUCache({
      maxSize: ENDED * (maxEventBytes + OVERHEAD),
      sizeCalculation: ({ bytes }) => bytes + OVERHEAD,
      ttl: eventSeconds * 1000,
    })
  }

  /** Add a recording, and keep it for some time after its end. */
  add(recording: Recording): void {
    const { sessionId, actor } = recording
    this.#ended.delete(keyOf(sessionId, actor))
    this.#running.add(recording)
    const keep = () => {
      if (recording.state === 'running') return
      recording.off('change', keep)
      this.#running.delete(recording)
      this.#ended.set(keyOf(sessionId, actor), recording)
    }
    recording.on('change', keep)
    keep()
  }

  /** Return the recording of the actor's newest turn in a session. */
  find(sessionId: string, actor: string | null): Recording | undefined {
    const isMatch = (recording: Recording) =>
      recording.sessionId === sessionId && recording.actor === actor
    return [...this.#running].findLast(isMatch) ?? this.#ended.get(keyOf(sessionId, actor))
  }

  /** Whether there is a recording of a session, of any actor. */
  has(sessionId: string): boolean {
    const recordings = [...this.#running, ...this.#ended.values()]
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
