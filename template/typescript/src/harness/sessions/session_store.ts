// Session stores: their protocol, and the in-memory store.

import { LRUCache } from 'lru-cache'

import type { CoreSettings } from '../settings.ts'

/** A stored snapshot: JSON, and the unique revision of its save. */
export interface Stored {
  readonly revision: string | null // null in a store without revisions
  readonly snapshot: string
  /** Whether the snapshot is older than a snapshot that this process has loaded. */
  readonly isRolledBack?: boolean
}

/** A store of committed snapshots. Methods throw AgentError when the store fails. */
export interface SessionStore {
  /** The maximum size of a snapshot. */
  readonly maxBytes: number
  /** The location, such as "in this process", without passwords. */
  readonly description: string
  /** A sentence about whether turns are saved; `chat` prints it last. */
  readonly retentionNotice: string

  /** Return the latest save, or null for an unknown session. */
  load(sessionId: string): Promise<Stored | null>

  /**
   * Save if the stored revision is `expected` (null: no snapshot), then call `saved`.
   *
   * Return the new revision. With another stored revision, throw and change nothing. An abort does
   * not interrupt a save.
   */
  save(
    id: string,
    snapshot: string,
    expected: string | null,
    saved: () => void,
  ): Promise<string | null>

  /** Delete a session; ignore an unknown id. */
  end(sessionId: string): Promise<void>

  /** Delete the actor's data of a session that has no snapshot; ignore an unknown id. */
  endRest(sessionId: string, actor: string | null): Promise<void>

  /** Yield the ids and snapshots of all readable sessions, without restarting idle times. */
  snapshots(): AsyncIterable<[string, string]>
}

/** A SessionStore in memory that drops the least recently used session first. */
export class InProcess implements SessionStore {
  readonly entries: LRUCache<string, Stored>
  readonly maxBytes: number
  readonly description: string
  readonly retentionNotice = 'Its turns were not saved: sessions live in this process.'

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

  async save(id: string, snapshot: string, _: string | null, saved: () => void): Promise<null> {
    this.entries.set(id, { revision: null, snapshot })
    saved()
    return null
  }

  async end(sessionId: string): Promise<void> {
    this.entries.delete(sessionId)
  }

  /** Do nothing: only snapshots are stored. */
  async endRest(): Promise<void> {}

  async *snapshots(): AsyncGenerator<[string, string]> {
    for (const [id, { snapshot }] of Array.from(this.entries.entries())) {
      yield [id, snapshot]
    }
  }
}
