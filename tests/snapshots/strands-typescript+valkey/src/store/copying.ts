// Copies sessions to another store, while turns run, and as often as it takes.
//
// A copy has a mark, which the next turn does not keep. So a later run replaces copies that nobody
// has continued, and leaves all other sessions of that store as they are.

import { Conflict, type DurableStore, StoreUnavailable, Unsupported } from './base.ts'
import { isSame } from './snapshot.ts'

export const MARK = 'copied' // in the app_data of a snapshot
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
    const snapshot = marked(stored.snapshot)
    if (snapshot === null) {
      report.failed.set(id, 'it is unreadable')
      return
    }
    const count = this.#checkpoints
    const kept = count > 0 && there ? await this.#target.checkpoints(id) : []
    const known = count > 0 ? (await this.#source.checkpoints(id)).slice(-count) : []
    const missing = known.filter((name) => !kept.includes(name))
    if (there && missing.length === 0 && isSame(there.snapshot, snapshot)) {
      report.same.push(id)
      return
    }
    let revision = there?.revision ?? null
    for (const name of missing) {
      // Some stores keep a checkpoint only with a save.
      const earlier = marked((await this.#source.loadCheckpoint(id, name)) ?? '')
      if (earlier) revision = await this.#target.save(id, earlier, revision, name)
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
    return JSON.parse(snapshot).app_data[MARK] === true
  } catch {
    return false
  }
}

/** Return the snapshot of a copy; null where it is not one of a session. */
function marked(snapshot: string): string | null {
  try {
    const value = JSON.parse(snapshot)
    const { app_data } = value
    if (typeof app_data !== 'object' || app_data === null || Array.isArray(app_data)) return null
    return JSON.stringify({ ...value, app_data: { ...app_data, [MARK]: true } })
  } catch {
    return null
  }
}
