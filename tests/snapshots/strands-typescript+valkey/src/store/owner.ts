// The actor that a stored session belongs to.

import type { DurableStore } from './base.ts'

export const UNREADABLE = Symbol('unreadable')

/** Return the actor in the latest readable snapshot, null where nothing is stored. */
export async function ownerOf(store: DurableStore, sessionId: string): Promise<unknown> {
  const stored = await store.load(sessionId)
  const owner = actorIn(stored?.snapshot)
  if (owner !== UNREADABLE) return owner
  const checkpoints = await store.checkpoints(sessionId)
  for (const id of checkpoints.toReversed()) {
    const earlier = actorIn(await store.loadCheckpoint(sessionId, id))
    if (earlier !== UNREADABLE) return earlier
  }
  const isThere =
    stored || checkpoints.length > 0 || (await store.quarantined(sessionId)).length > 0
  return isThere ? UNREADABLE : null
}

/** Return the actor in a snapshot, even in one that no turn could continue from. */
function actorIn(snapshot: string | null = null): unknown {
  try {
    const { actor } = JSON.parse(snapshot ?? '').app_data
    return actor === undefined ? UNREADABLE : actor
  } catch {
    return UNREADABLE
  }
}
