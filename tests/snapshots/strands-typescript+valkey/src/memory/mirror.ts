// Copies of committed snapshots for a further collection, written beside the turns.

import { setTimeout as sleep } from 'node:timers/promises'

import { describe, log } from '../contract.ts'
import { type Backend, Conflict, Unavailable } from './backends.ts'
import { readSnapshot } from './snapshots.ts'

const [SESSIONS, BYTES] = [1000, 100_000_000] // that may wait
const [ATTEMPTS, LONGEST_PAUSE, CLOSING] = [8, 30, 5] // the latter two in seconds

/**
 * Writes the newest snapshot of each session, one at a time, and tries again when it fails.
 *
 * A turn never waits for it nor fails by it. What does not fit is dropped, and the log says so;
 * the next turn of that session brings the copy up to date. An end comes before the turns after it.
 */
export class Mirror {
  readonly contact: string
  readonly #store: Backend
  readonly #most: number
  /** What is to be done for each session, in order: null deletes its copy. */
  readonly #waiting = new Map<string, (string | null)[]>()
  readonly #closing = new AbortController()
  #size = 0
  #task: Promise<void> | null = null

  /** `most` is the number of bytes up to which a copy can be read. */
  constructor(store: Backend, most: number) {
    this.#store = store
    this.#most = most
    this.contact = store.contact
  }

  /** Whether something is still to be written. */
  get isWaiting(): boolean {
    return this.#task !== null
  }

  /** Take what a turn committed. */
  put(sessionId: string, snapshot: string): void {
    const ends = this.#waiting.get(sessionId)?.filter((step) => step === null) ?? []
    this.#take(sessionId, [...ends, snapshot])
  }

  /** Take that a session ended. */
  end(sessionId: string): void {
    this.#take(sessionId, [null])
  }

  /** Try once more to write what waits, for some seconds, and close the store. */
  async close(): Promise<void> {
    this.#closing.abort()
    await Promise.race([this.#task, sleep(CLOSING * 1000, null, { ref: false })])
    for (const sessionId of this.#waiting.keys()) this.#drop(sessionId, 'the process ends')
    await this.#store.close()
  }

  #take(sessionId: string, steps: (string | null)[]): void {
    this.#remove(sessionId)
    this.#waiting.set(sessionId, steps)
    this.#size += sizeOf(steps)
    if (this.#closing.signal.aborted) return this.#drop(sessionId, 'the process ends')
    for (const oldest of this.#waiting.keys()) {
      const isTooMuch = this.#waiting.size > SESSIONS || this.#size > BYTES
      if (!isTooMuch || this.#waiting.size === 1) break
      this.#drop(oldest, `too many wait for ${this.contact}`)
    }
    this.#task ??= this.#run()
  }

  #remove(sessionId: string): void {
    this.#size -= sizeOf(this.#waiting.get(sessionId))
    this.#waiting.delete(sessionId)
  }

  #drop(sessionId: string, why: string): void {
    this.#remove(sessionId)
    log('WARNING', `session ${sessionId}: not copied: ${why}`)
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing
    let failed = 0 // attempts in a row
    for (let next = first(this.#waiting); next; next = first(this.#waiting)) {
      const [sessionId, [step = null]] = next
      let why = ''
      try {
        await this.#write(sessionId, step)
      } catch (error) {
        const isTold = error instanceof Unavailable
        why = isTold ? error.message : describe(error)
        failed = isTold || error instanceof Conflict ? failed : ATTEMPTS
      }
      failed = why ? failed + 1 : 0
      if (0 < failed && failed < ATTEMPTS && !signal.aborted) {
        const pause = Math.min(2 ** failed / 2, LONGEST_PAUSE) * 1000
        await sleep(pause, null, { signal, ref: false }).catch(() => {})
        continue
      }
      failed = 0
      const steps = this.#waiting.get(sessionId) ?? []
      if (steps[0] !== step) continue // meanwhile something newer took its place
      if (why) this.#drop(sessionId, why)
      else if (steps.length > 1) steps.shift()
      else this.#remove(sessionId)
    }
    this.#task = null
  }

  async #write(sessionId: string, snapshot: string | null): Promise<void> {
    if (snapshot === null) return await this.#store.end(sessionId)
    let stored = await this.#store.load(sessionId)
    const copy = stored && readSnapshot(stored.snapshot ?? '', this.#most)
    if (copy && isNewer(copy, snapshot)) return
    if (stored && !copy) {
      await this.#store.setAside(sessionId, stored.revision) // it cannot be read, and is kept
      stored = null
    }
    await this.#store.save(sessionId, snapshot, stored?.revision ?? null)
  }
}

function sizeOf(steps: (string | null)[] = []): number {
  return steps.at(-1)?.length ?? 0
}

function first<T>(all: Iterable<T>): T | undefined {
  for (const one of all) return one
  return undefined
}

/** Whether the copy is of a later turn: by number and by time, as a restore counts anew. */
function isNewer(copy: string, snapshot: string): boolean {
  const [one, other] = [JSON.parse(copy), JSON.parse(snapshot)]
  return one.app_data.turn > other.app_data.turn && one.created_at >= other.created_at
}
