// Where committed snapshots live: the protocol of a session store, and the one in memory.

import { LRUCache } from 'lru-cache'

import type { Settings } from './settings.ts'

/** A snapshot as a store holds it: JSON, and the revision of that save. */
export interface Stored {
  readonly revision: string | null // unique; null: the store has no revisions
  readonly snapshot: string
}

/** Where committed snapshots live. Each method throws AgentError when the store fails. */
export interface SessionStore {
  /** Of a snapshot. */
  readonly maxBytes: number

  /** Return what was saved last, or null. An empty snapshot: it was here, and has vanished. */
  load(sessionId: string): Promise<Stored | null>

  /**
   * Replace the `expected` revision (null: nothing), or throw, and call `saved`; no abort can
   * interrupt it. When the reply of a store was lost, `saved` may be called later, by `load`.
   */
  save(id: string, snapshot: string, expected: string | null, saved: () => void): Promise<void>

  /** Delete the session, known or not. */
  end(sessionId: string): Promise<void>
}

/** A SessionStore in memory, limited in sessions and bytes; drops the least recently used first. */
export class InProcess implements SessionStore {
  readonly entries: LRUCache<string, Stored>
  readonly maxBytes: number

  constructor(settings: Settings) {
    const [max, ttl] = [settings.sessionCapacity, settings.sessionIdleSeconds * 1000]
    this.maxBytes = settings.maxSnapshotBytes
    const maxSize = 16 * this.maxBytes
    const sizeCalculation = ({ snapshot }: Stored) => Buffer.byteLength(snapshot) || 1
    this.entries = new LRUCache({ max, ttl, updateAgeOnGet: true, maxSize, sizeCalculation })
  }

  async load(sessionId: string): Promise<Stored | null> {
    return this.entries.get(sessionId) ?? null
  }

  async save(id: string, snapshot: string, _: string | null, saved: () => void): Promise<void> {
    this.entries.set(id, { revision: null, snapshot })
    saved()
  }

  async end(sessionId: string): Promise<void> {
    this.entries.delete(sessionId)
  }
}
