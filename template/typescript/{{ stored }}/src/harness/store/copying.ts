// Copies sessions to another store, repeatedly and while turns run.
//
// Each copy carries a seal: a digest of its content. A turn that continues the copy breaks the
// seal. A later run therefore replaces copies with an intact seal, and leaves all other sessions
// unchanged.

import { createHash } from 'node:crypto'

import { Conflict, type DurableStore, type Files, NO_FILES } from './base.ts'
import { StoreUnavailable, Unsupported } from './base.ts'
import { namesIn } from './detached_files.ts'
import { isSame } from './snapshot.ts'

const SEAL = 'copied' // in the app_data of a snapshot
const OPEN_WORK = 'it has open work, which both agents would do: copy it again after that'
const CONCURRENCY = 8

/** The ids of sessions, by result. */
export class CopyReport {
  readonly copied: string[] = []
  readonly unchanged: string[] = []
  /** In the target, so not overwritten. */
  readonly continued: string[] = []
  /** In the source, after the last copy. */
  readonly ended: string[] = []
  /** Reasons by id. */
  readonly failed = new Map<string, string>()
}

/** Copies sessions from one store to another, each with its last `checkpoints`. */
export class Copy {
  readonly report = new CopyReport()
  readonly #source: DurableStore
  readonly #target: DurableStore
  readonly #checkpoints: number
  readonly #ends: boolean

  /** `ends`: whether to end copies of ended sessions. */
  constructor(source: DurableStore, target: DurableStore, checkpoints: number, ends: boolean) {
    this.#source = source
    this.#target = target
    this.#checkpoints = checkpoints
    this.#ends = ends
  }

  /** Copy these sessions, or all if `ids` is empty. Throws StoreUnavailable and Unsupported. */
  async run(ids: readonly string[]): Promise<CopyReport> {
    const named = new Set(ids.length > 0 ? ids : await this.#source.sessions())
    // If the target cannot list its sessions, ended sessions stay undetected.
    if (ids.length === 0) for (const id of await sessionsOf(this.#target)) named.add(id)
    const queue = [...named].toSorted().values()
    const work = async () => {
      for (const id of queue) await this.#tryCopy(id)
    }
    await Promise.all(Array.from({ length: CONCURRENCY }, work))
    return this.report
  }

  async #tryCopy(id: string): Promise<void> {
    try {
      await this.#copy(id)
    } catch (error) {
      if (!(error instanceof Conflict || error instanceof StoreUnavailable)) throw error
      this.report.failed.set(id, error.message || 'another process changed it during the copy')
    }
  }

  async #copy(id: string): Promise<void> {
    const { report } = this
    const copy = await this.#target.load(id)
    const stored = await this.#source.load(id)
    if (copy && !isCopy(copy.snapshot)) {
      if (stored) report.continued.push(id)
      return
    }
    if (!stored) {
      if (copy) report.ended.push(id)
      if (copy && this.#ends) await this.#target.end(id)
      return
    }
    const snapshot = sealed(stored.snapshot)
    if (snapshot === null) {
      report.failed.set(id, 'it is unreadable')
      return
    }
    if (hasOpenWork(snapshot)) {
      report.failed.set(id, OPEN_WORK)
      return
    }
    if (copy && isSame(copy.snapshot, snapshot)) {
      report.unchanged.push(id)
      return
    }
    let revision = copy?.revision ?? null
    const checkpoints = await this.#sealedCheckpoints(id)
    const present = copy ? namesIn(copy.snapshot) : []
    let files = await this.#loadFiles(id, [snapshot, ...checkpoints.values()], present)
    for (const [name, earlier] of checkpoints) {
      if (copy) {
        // A save would make the earlier turn the latest.
        await this.#target.saveCheckpoint(id, earlier, name)
      } else {
        // Some stores create a checkpoint only with a save.
        revision = await this.#target.save(id, earlier, revision, name, files)
        files = NO_FILES
      }
    }
    await this.#target.save(id, snapshot, revision, null, files)
    const used = namesIn(snapshot)
    const dropped = present.filter((name) => !used.includes(name))
    await this.#target.trimFiles(id, dropped)
    report.copied.push(id)
  }

  /** Return the last readable checkpoints with new seals, by id. */
  async #sealedCheckpoints(id: string): Promise<Map<string, string>> {
    const checkpoints = new Map<string, string>()
    const count = this.#checkpoints
    for (const name of count > 0 ? (await this.#source.checkpoints(id)).slice(-count) : []) {
      const earlier = sealed((await this.#source.loadCheckpoint(id, name)) ?? '')
      if (earlier) checkpoints.set(name, earlier)
    }
    return checkpoints
  }

  /** Return the files of snapshots that are not yet present in the target. */
  async #loadFiles(id: string, snapshots: string[], present: string[]): Promise<Files> {
    const names = new Set(snapshots.flatMap(namesIn))
    for (const name of present) names.delete(name)
    return names.size > 0 ? await this.#source.loadFiles(id, [...names]) : NO_FILES
  }
}

async function sessionsOf(store: DurableStore): Promise<string[]> {
  try {
    return await store.sessions()
  } catch (error) {
    if (error instanceof Unsupported) return []
    throw error
  }
}

function isCopy(snapshot: string): boolean {
  try {
    const value = JSON.parse(snapshot)
    return value.app_data[SEAL] === sealOf(value)
  } catch {
    return false
  }
}

/** Return the snapshot with a new seal, or null if it is unreadable. */
function sealed(snapshot: string): string | null {
  try {
    const value = JSON.parse(snapshot)
    value.app_data[SEAL] = sealOf(value)
    return JSON.stringify(value)
  } catch {
    return null
  }
}

/** Whether the agent still has work to do for the session, which its copy would repeat. */
function hasOpenWork(snapshot: string): boolean {
  const { records = {} } = JSON.parse(snapshot).app_data as { records?: Record<string, object> }
  return Object.values(records).some((record) => 'open' in record && record.open)
}

/**
 * Return a digest of the fields that a store returns unchanged, equal in all languages.
 *
 * Throws if they are missing.
 */
function sealOf({ created_at, data, app_data }: any): string {
  if (Array.isArray(app_data)) throw new TypeError('not of a session')
  const { [SEAL]: _, ...fields } = app_data
  const parts = JSON.stringify(portable([created_at, data.messages.slice(), fields]))
  return createHash('sha256').update(parts).digest('hex')
}

/**
 * Return JSON that all languages write in the same way.
 *
 * Numbers become their bytes, and mappings become pairs, sorted by UTF-16 code units.
 */
function portable(value: unknown): unknown {
  if (typeof value === 'number') {
    const bytes = Buffer.alloc(8)
    bytes.writeDoubleBE(value + 0) // JSON.stringify writes -0 as 0
    return bytes.toString('hex')
  }
  if (Array.isArray(value)) return value.map(portable)
  if (typeof value !== 'object' || value === null) return value
  const sorted = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1))
  return sorted.map(([name, part]) => [name, portable(part)])
}
