// Caches a durable store, detects conflicts and lost saves, and quarantines unreadable data.

import { isDeepStrictEqual } from 'node:util'

import { LRUCache } from 'lru-cache'

import { AgentError } from '../contract.ts'
import { log } from '../log.ts'
import { InProcess, type SessionStore, type Stored } from '../sessions/session_store.ts'
import { Conflict, type DurableStore, type Files, idAfter, isOlder } from './base.ts'
import { readLimit, StoreUnavailable, TooLarge, Unsupported } from './base.ts'
import { attachFiles, detachFiles, isIntact, namesIn } from './detached_files.ts'
import type { StoreSettings } from './settings.ts'
import { actorIn, foreignFormat, isSame, NOTHING, ownerOf, readSnapshot } from './snapshot.ts'
import { UNREADABLE, withoutPending } from './snapshot.ts'

/** Marks erased data; no caller may use it. */
const FORGOTTEN = /^forgotten-[0-9a-f]{64}$/

const TOO_LARGE = 'The session is too large, even without its turns.'
const UNREAD = 'The session is too large to read.'
const UNCHANGED =
  'It is unchanged: start a new session, and delete this session with `sessions end`.'

const UNOWNED =
  'What is left of this session is unreadable, so its actor is unknown: ' +
  'delete it with `sessions end`.'

/** Cached in this process, but missing from the store. */
const GONE: Stored = { revision: null, snapshot: '' }

/**
 * A SessionStore that caches the snapshots of a DurableStore and asks it only for changes.
 *
 * It stores the files of a session beside the snapshot. If the store is read-only, new turns stay
 * in this process.
 */
export class CachedStore implements SessionStore {
  readonly maxBytes: number
  readonly description: string
  readonly retentionNotice: string
  readonly #settings: StoreSettings
  readonly #store: DurableStore
  /** Snapshots with references to files. */
  readonly #cache: LRUCache<string, Stored>
  /** Contents by session and name. */
  readonly #files: LRUCache<string, Uint8Array>
  /** The turns of this process if the store is read-only; an empty snapshot: an ended session. */
  readonly #local: InProcess | null
  /** Sessions whose end failed. */
  readonly #unended: LRUCache<string, Stored>
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
    this.#unended = new InProcess(settings).entries
    this.#local = isWritable ? null : new InProcess(settings)
    const maxSize = 16 * this.maxBytes
    this.#files = new LRUCache({ maxSize, sizeCalculation: ({ length }) => length || 1 })
    this.#unknown = new LRUCache({ maxSize, sizeCalculation: ({ snapshot }) => snapshot.length })
  }

  /**
   * Return the committed snapshot, or null, or GONE.
   *
   * Throws AgentError:
   * - `session_conflict` if another process changed the snapshot during the call
   * - `session_corrupt` after it quarantined the snapshot
   * - `session_foreign` and `session_too_large`, without a change
   * - `session_forbidden` for the id of a `forget` marker
   * - `store_unavailable`
   */
  async load(sessionId: string): Promise<Stored | null> {
    if (FORGOTTEN.test(sessionId)) throw new AgentError('session_forbidden')
    const local = await this.#local?.load(sessionId)
    if (local) return local.snapshot ? local : null // without a snapshot: ended in this process
    const known = this.#cache.get(sessionId) ?? null
    const stored = await this.#store.load(sessionId, known === GONE ? null : known).catch(fail)
    if (stored === null) {
      if (known === null || known === GONE) return known
      // Expired, evicted, lost in a restart, or ended elsewhere.
      log('WARNING', `session ${sessionId}: its turns vanished from the store`)
      this.#cache.set(sessionId, GONE) // until the next turn is committed
      return GONE
    }
    if (stored === known) return await this.#withFiles(sessionId, known)
    this.#cache.delete(sessionId)
    const unknown = this.#unknown.get(sessionId)
    if (unknown && isSame(stored.snapshot, unknown.snapshot)) {
      this.#unknown.delete(sessionId)
      unknown.saved() // the earlier save succeeded
    }
    if (stored instanceof TooLarge) {
      throw tooLarge(UNREAD, `more than ${readLimit(this.maxBytes)} bytes`)
    }
    const snapshot = readSnapshot(stored.snapshot, this.maxBytes)
    const latest =
      snapshot === null ? await this.#readAgain(sessionId, stored) : { ...stored, snapshot }
    const size = Buffer.byteLength(latest.snapshot)
    if (size > this.maxBytes) throw tooLarge(TOO_LARGE, `${size} bytes`)
    const isRolledBack = known !== null && isOlder(latest.revision, known.revision)
    if (isRolledBack) {
      // For example, after a failover.
      log('WARNING', `session ${sessionId}: the store has lost turns that this process has seen`)
    }
    const text = this.#local ? withoutPending(latest.snapshot) : latest.snapshot
    const read = { ...latest, snapshot: text, isRolledBack }
    this.#cache.set(sessionId, read)
    return await this.#withFiles(sessionId, read)
  }

  /**
   * Save if the stored revision is `expected`, and return the new revision.
   *
   * Throws AgentError `session_conflict` or `store_unavailable`.
   */
  async save(
    sessionId: string,
    snapshot: string,
    expected: string | null,
    saved: () => void,
  ): Promise<string | null> {
    if (this.#local) return await this.#local.save(sessionId, snapshot, expected, saved)
    let stored = filesOf(this.#cache.get(sessionId), expected)
    let [detached, files] = detachFiles(snapshot, stored)
    if (files.size > 0 && expected !== null && !this.#cache.has(sessionId)) {
      // Evicted during the turn.
      stored = filesOf(await this.#store.load(sessionId).catch(fail), expected)
      ;[detached, files] = detachFiles(snapshot, stored)
    }
    const revision = await this.#save(sessionId, detached, expected, saved, files)
    this.#unknown.delete(sessionId)
    this.#unended.delete(sessionId)
    this.#cache.set(sessionId, { revision, snapshot: detached })
    this.#cacheFiles(sessionId, files)
    saved()
    const used = namesIn(detached)
    const dropped = stored.filter((name) => !used.includes(name))
    if (dropped.length > 0 || files.size > 0) await this.#store.trimFiles(sessionId, dropped)
    return revision
  }

  /** Save, and return the revision, even of a save whose response was lost. */
  async #save(
    sessionId: string,
    snapshot: string,
    expected: string | null,
    saved: () => void,
    files: Files,
  ): Promise<string | null> {
    let checkpoint: string | null = null
    try {
      if (this.#settings.checkpoints > 0) {
        checkpoint = idAfter(await this.#store.checkpoints(sessionId))
      }
      return await this.#store.save(sessionId, snapshot, expected, checkpoint, files)
    } catch (error) {
      const isUnknown = error instanceof StoreUnavailable && error.indeterminate
      if (!isUnknown && !(error instanceof Conflict)) fail(error)
      this.#unknown.set(sessionId, { snapshot, saved })
      const revision = await this.#findSaved(sessionId, snapshot, error).catch(async (failure) => {
        const isConflict = failure instanceof AgentError && failure.type === 'session_conflict'
        if (isConflict && files.size > 0) await this.#store.trimFiles(sessionId, [...files.keys()])
        throw failure
      })
      if (checkpoint) await this.#store.saveCheckpoint(sessionId, snapshot, checkpoint)
      return revision
    }
  }

  /**
   * Delete the session; if the store is read-only, only in this process.
   *
   * Throws AgentError `store_unavailable`.
   */
  async end(sessionId: string): Promise<void> {
    const known = this.#cache.get(sessionId)
    this.#cache.delete(sessionId)
    if (this.#local) return void (await this.#local.save(sessionId, '', null, () => {}))
    await this.#store.end(sessionId).catch((error) => {
      if (known) this.#unended.set(sessionId, known)
      fail(error)
    })
    this.#unended.delete(sessionId)
  }

  /**
   * Delete data without a snapshot, such as checkpoints, unless the store is read-only.
   *
   * Without such data, delete only old files: recent files may be those of a running first turn,
   * and an endpoint would also end the session for its other agents. But repeat an end that
   * failed: an endpoint may have done only a part of it.
   *
   * Throws AgentError:
   * - `session_forbidden` if another actor owns the data
   * - `session_corrupt` if its owner is unknown
   * - `store_unavailable`
   */
  async endRest(sessionId: string, actor: string | null): Promise<void> {
    this.#cache.delete(sessionId)
    if (this.#local) return
    let owner = await ownerOf(this.#store, sessionId).catch(fail)
    const unended = this.#unended.get(sessionId)
    if (owner === NOTHING && unended) owner = actorIn(unended.snapshot)
    if (owner === NOTHING) return await this.#store.trimFiles(sessionId)
    if (owner === UNREADABLE) throw new AgentError('session_corrupt', UNOWNED)
    if (owner !== actor) throw new AgentError('session_forbidden')
    await this.end(sessionId)
  }

  /**
   * Yield the ids and snapshots of all readable sessions.
   *
   * Throws AgentError `store_unavailable`, including when the store cannot list its sessions.
   */
  async *snapshots(): AsyncGenerator<[string, string]> {
    const local = new Map<string, string>()
    for await (const [id, snapshot] of this.#local?.snapshots() ?? []) local.set(id, snapshot)
    for (const id of await this.#store.sessions().catch(fail)) {
      if (local.has(id) || FORGOTTEN.test(id)) continue
      const stored = await this.#store.load(id).catch(fail)
      const snapshot = stored && readSnapshot(stored.snapshot, this.maxBytes)
      if (snapshot) yield [id, snapshot]
    }
    for (const [id, snapshot] of local) {
      if (snapshot) yield [id, snapshot] // without a snapshot: ended in this process
    }
  }

  /** Return a snapshot with its files; a file that the store has lost is empty. */
  async #withFiles(sessionId: string, stored: Stored): Promise<Stored> {
    if (!stored.snapshot.includes('sha256')) return stored
    const files = new Map<string, Uint8Array>()
    const missing: string[] = []
    for (const name of namesIn(stored.snapshot)) {
      const content = this.#files.get(`${sessionId} ${name}`)
      if (content) files.set(name, content)
      else missing.push(name)
    }
    const loaded = missing.length > 0 ? await this.#loadFiles(sessionId, stored, missing) : []
    for (const [name, content] of loaded) files.set(name, content)
    return { ...stored, snapshot: attachFiles(stored.snapshot, files) }
  }

  /** Return the files that exist. Throws AgentError if the snapshot is not the latest. */
  async #loadFiles(sessionId: string, stored: Stored, names: string[]): Promise<Files> {
    const files = await this.#readFiles(sessionId, names)
    const missing = names.filter((name) => !files.has(name))
    // The network may have changed a response.
    const again = missing.length > 0 ? await this.#readFiles(sessionId, missing) : []
    for (const [name, content] of again) files.set(name, content)
    const lost = names.filter((name) => !files.has(name)).length
    if (lost > 0) {
      const latest = await this.#store.load(sessionId).catch(fail)
      const isLatest = latest !== null && latest.revision === stored.revision
      if (!isLatest) throw new AgentError('session_conflict') // a save dropped them since
      log('ERROR', `session ${sessionId}: the store has lost ${lost} of its files`)
    }
    this.#cacheFiles(sessionId, files)
    return files
  }

  /** Return the files that exist and have the digest in their name. */
  async #readFiles(sessionId: string, names: string[]): Promise<Map<string, Uint8Array>> {
    const found = await this.#store.loadFiles(sessionId, names).catch(fail)
    return new Map([...found].filter(([name, content]) => isIntact(name, content)))
  }

  #cacheFiles(sessionId: string, files: Files): void {
    for (const [name, content] of files) this.#files.set(`${sessionId} ${name}`, content)
  }

  /** Return the revision of a save whose response was lost; otherwise throw AgentError. */
  async #findSaved(sessionId: string, snapshot: string, error: unknown): Promise<string | null> {
    const stored = await this.#store.load(sessionId).catch((again) => {
      // If the turn was saved, a retry with the same key returns its reply.
      log('ERROR', `session ${sessionId}: it is unknown whether the turn was saved`)
      return fail(again)
    })
    if (stored && isSame(stored.snapshot, snapshot)) return stored.revision
    return fail(error)
  }

  /**
   * Return the result of a second read; if that is unreadable too, quarantine the snapshot.
   *
   * The network may have cut or changed the first response.
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
      log('WARNING', `session ${sessionId}: only the second read was readable`)
      return { revision, snapshot }
    }
    if (!isDeepStrictEqual(again, first)) {
      throw new AgentError('store_unavailable', '', 'two reads returned different unreadable data')
    }
    throw await this.#quarantine(sessionId, revision)
  }

  /** Quarantine the snapshot, and return the error of the turn. */
  async #quarantine(sessionId: string, revision: string | null): Promise<AgentError> {
    try {
      if (this.#local) throw new StoreUnavailable('the collection is read-only')
      const name = await this.#store.quarantine(sessionId, revision)
      log('ERROR', `session ${sessionId}: quarantined an unreadable snapshot as ${name}`)
      return new AgentError('session_corrupt', '', name)
    } catch (error) {
      if (error instanceof Conflict) return new AgentError('session_conflict')
      if (!(error instanceof StoreUnavailable)) throw error
      const message = 'the stored snapshot is unreadable and could not be quarantined'
      return new AgentError('store_unavailable', '', `${message}: ${error.message}`)
    }
  }
}

/** Return the names of the files of the expected snapshot. */
function filesOf(stored: Stored | null | undefined, expected: string | null): string[] {
  return stored && stored.revision === expected ? namesIn(stored.snapshot) : []
}

function tooLarge(message: string, detail: string): AgentError {
  return new AgentError('session_too_large', `${message} ${UNCHANGED}`, detail)
}

/** Throw the AgentError that corresponds to an error of the store. */
function fail(error: unknown): never {
  if (error instanceof Conflict) throw new AgentError('session_conflict')
  const isKnown = error instanceof StoreUnavailable || error instanceof Unsupported
  if (!isKnown) throw error
  throw new AgentError('store_unavailable', '', error.message)
}
