// Where committed snapshots live: the protocol of a session store, and the one in memory.

import { LRUCache } from 'lru-cache'

import type { CoreSettings } from '../settings.ts'

/** A snapshot as a store holds it: JSON, and the revision of that save. */
export interface Stored {
  readonly revision: string | null // unique; null: the store has no revisions
  readonly snapshot: string
  /** Whether it is older than a state that this process has seen. */
  readonly isRolledBack?: boolean
}

/** Where committed snapshots live. Each method throws AgentError when the store fails. */
export interface SessionStore {
  /** The largest size of a snapshot. */
  readonly maxBytes: number
  /** Where sessions live, without passwords. */
  readonly description: string
  /** What becomes of the turns of a session, printed at the end of `chat`. */
  readonly retentionNotice: string

  /** Return what was saved last, or null. An empty snapshot: it was here, and has vanished. */
  load(sessionId: string): Promise<Stored | null>

  /**
   * Save if the stored revision is `expected` (null: nothing is stored), then call `saved`; else
   * throw and change nothing. No abort can interrupt it.
   */
  save(id: string, snapshot: string, expected: string | null, saved: () => void): Promise<void>

  /** Delete the session, known or not. */
  end(sessionId: string): Promise<void>

  /** Yield the ids and snapshots of all sessions that can be read; this uses none of them. */
  snapshots(): AsyncIterable<[string, string]>
}

/** A SessionStore in memory, limited in sessions and bytes; drops the least recently used first. */
export class InProcess implements SessionStore {
  readonly entries: LRUCache<string, Stored>
  readonly maxBytes: number
  readonly description: string
  readonly retentionNotice = 'Its turns were not kept: sessions live in this process.'

  constructor(settings: CoreSettings, description = 'in this process') {
    this.description = description
    const max = settings.sessionCapacity
    const ttl = settings.sessionIdleSeconds * 1000
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

  async *snapshots(): AsyncGenerator<[string, string]> {
    for (const [id, { snapshot }] of Array.from(this.entries.entries())) {
      yield [id, snapshot]
    }
  }
}
