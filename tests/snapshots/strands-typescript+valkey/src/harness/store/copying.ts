// Copies sessions to another store, while turns run, and as often as it takes.
//
// A copy has a seal: a digest of itself, which no longer fits once anything has changed it. So a
// later run replaces copies that nobody has continued, and leaves all other sessions alone.

import { createHash } from 'node:crypto'

import { Conflict, type DurableStore, StoreUnavailable, Unsupported } from './base.ts'
import { isSame } from './snapshot.ts'

const SEAL = 'copied' // in the app_data of a snapshot
const AT_ONCE = 8

/** What became of sessions, by their ids. */
export class Copied {
  readonly copied: string[] = []
  readonly same: string[] = []
  /** In the other store, so left alone. */
  readonly continued: string[] = []
  /** In the first store, after they were copied. */
  readonly ended: string[] = []
  /** And why. */
  readonly failed = new Map<string, string>()
}

/** Copies sessions of one store to another one, each with its last `checkpoints`. */
export class Copy {
  readonly report = new Copied()
  readonly #source: DurableStore
  readonly #target: DurableStore
  readonly #checkpoints: number
  readonly #ends: boolean

  /** `ends`: whether copies of sessions that have ended end, too. */
  constructor(source: DurableStore, target: DurableStore, checkpoints: number, ends: boolean) {
    this.#source = source
    this.#target = target
    this.#checkpoints = checkpoints
    this.#ends = ends
  }

  /** Copy these sessions, or all if none is named. Throws StoreUnavailable and Unsupported. */
  async run(ids: readonly string[]): Promise<Copied> {
    const named = new Set(ids.length > 0 ? ids : await this.#source.sessions())
    // Where the other store cannot list them, it is not known what has ended.
    if (ids.length === 0) for (const id of await sessionsOf(this.#target)) named.add(id)
    const left = [...named].toSorted().values()
    const work = async () => {
      for (const id of left) await this.#try(id)
    }
    await Promise.all(Array.from({ length: AT_ONCE }, work))
    return this.report
  }

  async #try(id: string): Promise<void> {
    try {
      await this.#copy(id)
    } catch (error) {
      if (!(error instanceof Conflict || error instanceof StoreUnavailable)) throw error
      this.report.failed.set(id, error.message || 'another process changed it meanwhile')
    }
  }

  async #copy(id: string): Promise<void> {
    const { report } = this
    const there = await this.#target.load(id)
    const stored = await this.#source.load(id)
    if (there && !isCopy(there.snapshot)) {
      if (stored) report.continued.push(id)
      return
    }
    if (!stored) {
      if (there) report.ended.push(id)
      if (there && this.#ends) await this.#target.end(id)
      return
    }
    const snapshot = sealed(stored.snapshot)
    if (snapshot === null) {
      report.failed.set(id, 'it is unreadable')
      return
    }
    if (there && isSame(there.snapshot, snapshot)) {
      report.same.push(id)
      return
    }
    let revision = there?.revision ?? null
    const count = this.#checkpoints
    for (const name of count > 0 ? (await this.#source.checkpoints(id)).slice(-count) : []) {
      const earlier = sealed((await this.#source.loadCheckpoint(id, name)) ?? '')
      // Some stores keep a checkpoint only with a save; but an earlier turn must not be the latest
      // again where there is a copy.
      if (earlier && there) await this.#target.saveCheckpoint(id, earlier, name)
      else if (earlier) revision = await this.#target.save(id, earlier, revision, name)
    }
    await this.#target.save(id, snapshot, revision)
    report.copied.push(id)
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

/** Return the snapshot of a copy; null where it is not one of a session. */
function sealed(snapshot: string): string | null {
  try {
    const value = JSON.parse(snapshot)
    value.app_data[SEAL] = sealOf(value)
    return JSON.stringify(value)
  } catch {
    return null
  }
}

/** Throws where a value is not a snapshot. What a store may add does not count. */
function sealOf({ created_at, data, app_data }: any): string {
  if (Array.isArray(app_data)) throw new TypeError('not of a session')
  const { [SEAL]: _, ...own } = app_data
  const parts = JSON.stringify([created_at, data.messages.slice(), own], (_name, part) => {
    const isMapping = typeof part === 'object' && part !== null && !Array.isArray(part)
    if (!isMapping) return part
    const sorted = Object.entries(part).toSorted(([one], [other]) => (one < other ? -1 : 1))
    return Object.fromEntries(sorted)
  })
  return createHash('sha256').update(parts).digest('hex')
}
