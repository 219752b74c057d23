// The public names of long-term memory: for tools, routes, jobs and own_memory.ts.

import type { AddOptions, FindOptions, Found } from './hits.ts'
import { current, type MemoryTurn } from './recall.ts'

export { type ActorMemory, NotAdded, ofActor } from './actor_memory.ts'
export type { Metadata, Turns, Utterance } from './base.ts'
export { type Found, type Hit, type InjectionContext, memoryBlock } from './hits.ts'
export type { Who } from './namespaces.ts'
export { MemoryPolicy } from './policy.ts'

/**
 * Return memories of the current actor, best first; `failures` has the failed stores.
 *
 * `stores` selects stores by name (default: all), `maxSearchResults` limits the results per store,
 * and `metadata` filters records. Throws RangeError for an unknown store or invalid values, and
 * Error outside a turn.
 */
export async function search(query: string, options: FindOptions = {}): Promise<Found> {
  return await turn().find(query, options)
}

/**
 * Add a text to the current actor's memory when the turn commits.
 *
 * `stores` selects stores by name (default: all that accept texts). The log reports failed stores.
 * Throws RangeError for a blank text, an unknown store or invalid metadata. Throws Error outside a
 * turn or without a writable memory.
 */
export function add(text: string, options: AddOptions = {}): void {
  turn().add(text, options)
}

function turn(): MemoryTurn {
  const found = current.getStore()
  if (found) return found
  throw new Error('Long-term memory belongs to an actor: call this inside a turn.')
}
