// The erasure of one actor's sessions from a store.

import { type DurableStore, StoreUnavailable, Unsupported } from './base.ts'
import { ownerOf, UNREADABLE } from './owner.ts'

/** The ids of the ended sessions; sentences about failures, and about what may be left. */
interface SessionsErased {
  readonly ended: string[]
  readonly failures: string[]
  readonly notes: string[]
}

/** End all sessions of an actor; `candidates` are tried where the store cannot list them. */
export async function eraseSessions(
  store: DurableStore,
  isWritable: boolean,
  actor: string,
  candidates: string[],
): Promise<SessionsErased> {
  const report: SessionsErased = { ended: [], failures: [], notes: [] }
  try {
    const ids = await store.sessions().catch((error) => {
      if (!(error instanceof Unsupported)) throw error
      const known = `only ${candidates.length} known ones were looked at`
      report.notes.push(`the session store cannot list its sessions: ${known}`)
      return candidates
    })
    for (const id of ids) {
      const owner = await ownerOf(store, id)
      if (owner === UNREADABLE) {
        report.notes.push(`session ${id} is unreadable, so it may belong to anyone`)
      } else if (owner === actor && !isWritable) {
        report.failures.push(`session ${id}: the session store is read-only here`)
      } else if (owner === actor) {
        await store.end(id)
        report.ended.push(id)
      }
    }
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error
    report.failures.push(`sessions: ${error.message}`)
  }
  return report
}
