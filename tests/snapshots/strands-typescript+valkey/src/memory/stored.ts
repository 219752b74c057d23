// The rules of a turn with a store: an LRU in front of it, and a comparison before each change.

import { AsyncLocalStorage } from 'node:async_hooks'

import { LRUCache } from 'lru-cache'
import { v7 as uuid7 } from 'uuid'

import { log } from '../contract.ts'
import { InProcess, Sessions } from '../sessions.ts'
import type { Settings } from '../settings.ts'
import { type Backend, Conflict, type Stored, Unavailable } from './backends.ts'
import { StoreError } from './errors.ts'
import type { Mirror } from './mirror.ts'
import type { Options } from './options.ts'
import { isSame, readSnapshot } from './snapshots.ts'

type Known = { readonly revision: string | null; readonly snapshot: string }
type Role = { isWritable?: boolean; mirrors?: readonly Mirror[] }

// What the turn of this task started from.
const started = new AsyncLocalStorage<{ loaded: Stored | null }>()

/** Sessions each turn of which knows where it started. */
export class StoredSessions extends Sessions {
  override open<T>(...turn: Parameters<typeof Sessions.prototype.open<T>>): Promise<T> {
    return started.run({ loaded: null }, () => super.open(...turn))
  }
}

/** Snapshots of a store, with those that this process knows in front of it. */
export class Cached extends InProcess {
  readonly #options: Options
  readonly #backend: Backend
  readonly #role: Required<Role>
  readonly #known: LRUCache<string, Known>

  constructor(settings: Settings, options: Options, backend: Backend, role: Role = {}) {
    super(settings)
    this.#options = options
    this.#backend = backend
    this.#role = { isWritable: true, mirrors: [], ...role }
    const [max, ttl] = [settings.sessionCapacity, settings.sessionIdleSeconds * 1000]
    this.#known = new LRUCache({ max, ttl, updateAgeOnGet: true })
  }

  /** What is stored last, or undefined. Throws `store_unavailable` and `session_corrupt`. */
  override async load(sessionId: string): Promise<string | undefined> {
    const own = this.#role.isWritable ? undefined : await super.load(sessionId)
    if (own !== undefined) return own || undefined // '' when they have ended
    const known = this.#known.get(sessionId)
    const stored = await this.#backend
      .load(sessionId, known?.revision)
      .catch((error) => refuse(error))
    this.#known.delete(sessionId)
    const turn = started.getStore()
    if (turn) turn.loaded = stored
    if (stored === null) return undefined
    const most = this.#options.maxSnapshotBytes
    const found = stored.snapshot === null ? known?.snapshot : readSnapshot(stored.snapshot, most)
    if (!found) throw await this.#setAside(sessionId, stored.revision)
    this.#known.set(sessionId, { revision: stored.revision, snapshot: found })
    return found
  }

  /**
   * Replace what `load` found; from here on a cancel comes too late.
   *
   * Throws `session_too_large`, `session_conflict` and `store_unavailable`.
   */
  override async save(sessionId: string, snapshot: string): Promise<void> {
    const size = Buffer.byteLength(snapshot)
    if (!this.#role.isWritable) {
      await super.save(sessionId, snapshot)
    } else if (size > this.#options.maxSnapshotBytes) {
      throw new StoreError('session_too_large', `${size} bytes`)
    } else {
      await this.#save(sessionId, snapshot)
    }
    for (const mirror of this.#role.mirrors) mirror.put(sessionId, snapshot)
  }

  /**
   * Delete the session that `load` found. Throws `store_unavailable`.
   *
   * Of one that it did not find, what was set aside stays: who it belonged to is not known.
   * Then its first turn may still run on another instance, which is committed after the end.
   * One of a read-only store stays there, and has ended for this process.
   */
  override async end(sessionId: string): Promise<void> {
    this.#known.delete(sessionId)
    const { isWritable, mirrors } = this.#role
    const found = isWritable ? started.getStore()?.loaded : await super.load(sessionId)
    const why = `session ${sessionId}: not ended`
    if (!isWritable) await super.save(sessionId, '')
    else if (found) await this.#backend.end(sessionId).catch((error) => refuse(error, why))
    for (const mirror of found ? mirrors : []) mirror.end(sessionId)
  }

  async #save(sessionId: string, snapshot: string): Promise<void> {
    const expected = started.getStore()?.loaded?.revision ?? null
    const checkpoint = this.#options.checkpoints > 0 ? uuid7() : null
    let revision: string | null
    try {
      revision = await this.#backend.save(sessionId, snapshot, expected, checkpoint)
    } catch (error) {
      const isUnknown = error instanceof Unavailable && !error.isCertain
      if (!isUnknown && !(error instanceof Conflict)) refuse(error)
      this.#known.delete(sessionId)
      revision = await this.#revisionOf(sessionId, snapshot, error)
      if (checkpoint) await this.#backend.keep(sessionId, snapshot, checkpoint)
    }
    this.#known.set(sessionId, { revision, snapshot })
  }

  /** The revision of what failed to be saved, if only the reply was lost; or throw. */
  async #revisionOf(sessionId: string, snapshot: string, error: unknown): Promise<string | null> {
    const stored = await this.#backend.load(sessionId).catch((again) => {
      // And a retry would be answered with the turn that was kept.
      log('ERROR', `session ${sessionId}: a turn may be kept, but not remembered`)
      return refuse(again)
    })
    if (stored && isSame(stored.snapshot, snapshot)) return stored.revision
    if (error instanceof Conflict) throw new StoreError('session_conflict')
    refuse(error)
  }

  /** Put what cannot be read where nothing overwrites it, and return how the turn ends. */
  async #setAside(sessionId: string, revision: string | null): Promise<StoreError> {
    try {
      if (!this.#role.isWritable) throw new Unavailable('the collection is read-only')
      const where = await this.#backend.setAside(sessionId, revision)
      log('ERROR', `session ${sessionId}: what was stored cannot be read; it is now ${where}`)
      return new StoreError('session_corrupt', where)
    } catch (error) {
      if (error instanceof Conflict) return new StoreError('session_conflict')
      if (!(error instanceof Unavailable)) throw error
      const what = 'what is stored cannot be read, and was not set aside'
      return new StoreError('store_unavailable', `${what}: ${error.message}`)
    }
  }
}

/** Throw what a caller is told of an error of the store. */
function refuse(error: unknown, what = ''): never {
  if (!(error instanceof Unavailable)) throw error
  if (what) log('WARNING', `${what}: ${error.message}`)
  throw new StoreError('store_unavailable', error.message)
}
