// The sessions of one actor: found in the store, and deleted.

import { type DurableStore, StoreUnavailable, Unsupported } from './base.ts'

const UNKNOWN = Symbol('the actor of a session that cannot be read')

/** The result of an erasure; failures are to be tried again, notes to be looked at. */
export interface SessionsErased {
  readonly ended: string[]
  readonly failures: string[]
  readonly notes: string[]
}

/** Delete the sessions of an actor; `candidates` are tried where the store cannot list. */
export async function eraseSessions(
  store: DurableStore,
  isWritable: boolean,
  actor: string,
  candidates: readonly string[],
): Promise<SessionsErased> {
  const erased: SessionsErased = { ended: [], failures: [], notes: [] }
  try {
    for (const id of await list(store, candidates, erased.notes)) {
      const owner = await ownerOf(store, id)
      if (owner === UNKNOWN) {
        erased.notes.push(`session ${id} cannot be read: its actor is unknown`)
      } else if (owner !== actor) {
        continue
      } else if (!isWritable) {
        erased.failures.push(`session ${id}: the collection is read-only here`)
      } else {
        await store.end(id)
        erased.ended.push(id)
      }
    }
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error
    erased.failures.push(`sessions: ${error.message}`)
  }
  return erased
}

async function list(
  store: DurableStore,
  candidates: readonly string[],
  notes: string[],
): Promise<readonly string[]> {
  try {
    return await store.sessions()
  } catch (error) {
    if (!(error instanceof Unsupported)) throw error
    const known = `only ${candidates.length} known from elsewhere were looked at`
    notes.push(`${store.contact} cannot list its sessions: ${known}`)
    return candidates
  }
}

/** The actor of a session, also of one whose last turn is lost but that has checkpoints. */
async function ownerOf(store: DurableStore, session: string): Promise<unknown> {
  const stored = await store.load(session)
  const owner = actorIn(stored?.snapshot)
  if (owner !== UNKNOWN) return owner
  const checkpoints = await store.checkpoints(session)
  for (const id of checkpoints.toReversed()) {
    const earlier = actorIn(await store.loadCheckpoint(session, id))
    if (earlier !== UNKNOWN) return earlier
  }
  const isThere = stored || checkpoints.length > 0 || (await store.quarantined(session)).length > 0
  return isThere ? UNKNOWN : null
}

/** The actor in a snapshot, even in one that no turn could continue from. */
function actorIn(snapshot: string | null = null): unknown {
  try {
    const { actor } = JSON.parse(snapshot ?? '').app_data
    return actor === undefined ? UNKNOWN : actor
  } catch {
    return UNKNOWN
  }
}
