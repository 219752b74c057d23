// A cache in front of a durable store: conflicts become 409, lost replies are detected, unreadable
// data is quarantined.

import { isDeepStrictEqual } from 'node:util'

import { LRUCache } from 'lru-cache'

import { AgentError } from '../contract.ts'
import { log } from '../log.ts'
import { InProcess, type SessionStore, type Stored } from '../sessions/session_store.ts'
import { Conflict, type DurableStore, idAfter, isOlder } from './base.ts'
import { StoreUnavailable, Unsupported } from './base.ts'
import type { StoreSettings } from './settings.ts'
import { foreignFormat, isSame, readSnapshot } from './snapshot.ts'

/** Markers that `forget` leaves; no caller may use them. */
const FORGOTTEN = /^forgotten-[0-9a-f]{64}$/

const TOO_LARGE =
  'The session is too large, even without its turns. It is unchanged: ' +
  'start a new session, and delete this one with the command `sessions end`.'

/** A session that was cached here, and that the store no longer has. */
const GONE: Stored = { revision: null, snapshot: '' }

/**
 * A SessionStore on a DurableStore: it throws AgentErrors, and caches what it loads.
 *
 * It quarantines unreadable snapshots. If the store is read-only, new turns stay in this process.
 */
export class CachedStore implements SessionStore {
  readonly maxBytes: number
  readonly description: string
  readonly retentionNotice: string
  readonly #settings: StoreSettings
  readonly #store: DurableStore
  readonly #cache: LRUCache<string, Stored>
  /** What turns leave where the store is read-only; an empty snapshot is a session that ended. */
  readonly #own: InProcess | null
  /** Saves whose outcome is unknown, by session. */
  readonly #unknown: LRUCache<string, { snapshot: string; saved: () => void }>

  constructor(
    settings: StoreSettings,
    store: DurableStore,
    isWritable: boolean,
    description = store.contact,
  ) {
    this.maxBytes = settings.maxSnapshotBytes
    this.description = description
    this.retentionNotice = isWritable
      ? 'Its turns are kept: continue with -- --session.'
      : 'Its turns were not kept: the session store is read-only.'
    this.#settings = settings
    this.#store = store
    this.#cache = new InProcess(settings).entries
    this.#own = isWritable ? null : new InProcess(settings)
    const maxSize = 16 * this.maxBytes
    this.#unknown = new LRUCache({ maxSize, sizeCalculation: ({ snapshot }) => snapshot.length })
  }

  /**
   * See SessionStore. Throws `store_unavailable`, `session_corrupt`, `session_conflict`,
   * `session_foreign` and `session_too_large` for what stays as it is, and `session_forbidden` for
   * what `forget` leaves.
   */
  async load(sessionId: string): Promise<Stored | null> {
    if (FORGOTTEN.test(sessionId)) throw new AgentError('session_forbidden')
    const own = await this.#own?.load(sessionId)
    if (own) return own.snapshot ? own : null
    const known = this.#cache.get(sessionId) ?? null
    const stored = await this.#store.load(sessionId, known === GONE ? null : known).catch(fail)
    if (stored === null) {
      if (known === null || known === GONE) return known
      // Expired, evicted, lost in a restart or ended elsewhere.
      log('WARNING', `session ${sessionId}: its turns vanished from the store`)
      this.#cache.set(sessionId, GONE) // until the next turn is committed
      return GONE
    }
    if (stored === known) return known
    this.#cache.delete(sessionId)
    const unknown = this.#unknown.get(sessionId)
    if (unknown && isSame(stored.snapshot, unknown.snapshot)) {
      this.#unknown.delete(sessionId)
      unknown.saved()
    }
    const snapshot = readSnapshot(stored.snapshot, this.maxBytes)
    const found =
      snapshot === null ? await this.#readAgain(sessionId, stored) : { ...stored, snapshot }
    const size = Buffer.byteLength(found.snapshot)
    if (size > this.maxBytes) throw new AgentError('session_too_large', TOO_LARGE, `${size} bytes`)
    const isRolledBack = known !== null && isOlder(found.revision, known.revision)
    if (isRolledBack) {
      // Such as in a failover.
      log('WARNING', `session ${sessionId}: the store has lost turns that this process has seen`)
    }
    const read = { ...found, isRolledBack }
    this.#cache.set(sessionId, read)
    return read
  }

  /** See SessionStore. Throws `session_conflict` and `store_unavailable`. */
  async save(
    sessionId: string,
    snapshot: string,
    expected: string | null,
    saved: () => void,
  ): Promise<void> {
    if (this.#own) return await this.#own.save(sessionId, snapshot, expected, saved)
    let checkpoint: string | null = null
    let revision: string | null
    try {
      if (this.#settings.checkpoints > 0) {
        checkpoint = idAfter(await this.#store.checkpoints(sessionId))
      }
      revision = await this.#store.save(sessionId, snapshot, expected, checkpoint)
    } catch (error) {
      const isUnknown = error instanceof StoreUnavailable && error.indeterminate
      if (!isUnknown && !(error instanceof Conflict)) fail(error)
      this.#unknown.set(sessionId, { snapshot, saved })
      revision = await this.#findSaved(sessionId, snapshot, error)
      if (checkpoint) await this.#store.saveCheckpoint(sessionId, snapshot, checkpoint)
    }
    this.#unknown.delete(sessionId)
    this.#cache.set(sessionId, { revision, snapshot })
    saved()
  }

  /** See SessionStore; if the store is read-only, the session ends only in this process. */
  async end(sessionId: string): Promise<void> {
    this.#cache.delete(sessionId)
    if (this.#own) await this.#own.save(sessionId, '', null, () => {})
    else await this.#store.end(sessionId).catch(fail)
  }

  /**
   * Yield the ids and snapshots of the sessions; leave out those that cannot be read.
   *
   * Throws AgentError `store_unavailable`, also for a store that cannot list its sessions.
   */
  async *snapshots(): AsyncGenerator<[string, string]> {
    const own = new Map<string, string>()
    for await (const [id, snapshot] of this.#own?.snapshots() ?? []) own.set(id, snapshot)
    for (const id of await this.#store.sessions().catch(fail)) {
      if (own.has(id) || FORGOTTEN.test(id)) continue
      const stored = await this.#store.load(id).catch(fail)
      const snapshot = stored && readSnapshot(stored.snapshot, this.maxBytes)
      if (snapshot) yield [id, snapshot]
    }
    for (const [id, snapshot] of own) {
      if (snapshot) yield [id, snapshot] // without a snapshot: ended in this process
    }
  }

  /** Return the revision of a save whose acknowledgement was lost, or throw its error. */
  async #findSaved(sessionId: string, snapshot: string, error: unknown): Promise<string | null> {
    const stored = await this.#store.load(sessionId).catch((again) => {
      // If the turn was saved, a retry with the same key gets its reply.
      log('ERROR', `session ${sessionId}: it is unknown whether the turn was saved`)
      return fail(again)
    })
    if (stored && isSame(stored.snapshot, snapshot)) return stored.revision
    return fail(error)
  }

  /**
   * Return what a second read finds; quarantine what is unreadable in both.
   *
   * The second read may be readable, as the first one was cut or changed on its way.
   */
  async #readAgain(sessionId: string, first: Stored): Promise<Stored> {
    const reason = foreignFormat(first.snapshot)
    if (reason !== null) {
      const message = `This session cannot be continued: ${reason}. It is unchanged.`
      throw new AgentError('session_foreign', message)
    }
    const again = await this.#store.load(sessionId).catch(fail)
    if (again === null) throw new AgentError('session_conflict')
    const { revision } = again
    const snapshot = readSnapshot(again.snapshot, this.maxBytes)
    if (snapshot !== null) {
      log('WARNING', `session ${sessionId}: only its second read was readable`)
      return { revision, snapshot }
    }
    if (!isDeepStrictEqual(again, first)) {
      throw new AgentError('store_unavailable', '', 'two unreadable reads differ')
    }
    throw await this.#quarantine(sessionId, revision)
  }

  /** Quarantine what cannot be read, and return the error of the turn. */
  async #quarantine(sessionId: string, revision: string | null): Promise<AgentError> {
    try {
      if (this.#own) throw new StoreUnavailable('the collection is read-only')
      const name = await this.#store.quarantine(sessionId, revision)
      log('ERROR', `session ${sessionId}: its stored snapshot is unreadable, and now at ${name}`)
      return new AgentError('session_corrupt', '', name)
    } catch (error) {
      if (error instanceof Conflict) return new AgentError('session_conflict')
      if (!(error instanceof StoreUnavailable)) throw error
      const what = 'the stored snapshot is unreadable, and was not quarantined'
      return new AgentError('store_unavailable', '', `${what}: ${error.message}`)
    }
  }
}

/** Throw the AgentError for an error of the store. */
function fail(error: unknown): never {
  if (error instanceof Conflict) throw new AgentError('session_conflict')
  const isKnown = error instanceof StoreUnavailable || error instanceof Unsupported
  if (!isKnown) throw error
  throw new AgentError('store_unavailable', '', error.message)
}
