// The public names of long-term memory: for tools, routes, jobs and own_memory.ts.

import type { AddOptions, FindOptions, Found } from './hits.ts'
import { type MemoryTurn, turnStorage } from './recall.ts'

export { type ActorMemory, NotAdded, ofActor } from './actor_memory.ts'
export type { Metadata, Turns, Utterance } from './base.ts'
export { type Found, type Hit, type InjectionContext, memoryBlock } from './hits.ts'
export type { Who } from './namespaces.ts'
export { MemoryPolicy } from './policy.ts'

/**
 * Return the current actor's memories, best first; `failures` maps failed stores to reasons.
 *
 * `stores` selects stores by name (default: all), `maxSearchResults` limits the results per store,
 * and `metadata` filters records. Throws RangeError for an unknown store or invalid values, and
 * Error outside a turn.
 */
export async function search(query: string, options: FindOptions = {}): Promise<Found> {
  return await turn().find(query, options)
}

/**
 * Queue text to store in the current actor's memory when the turn commits.
 *
 * `stores` selects stores by name (default: all that accept texts). The log reports failed stores.
 * Throws RangeError for blank text, an unknown store or invalid metadata. Throws Error outside a
 * turn, and if no memory is writable.
 */
export function add(text: string, options: AddOptions = {}): void {
  turn().add(text, options)
}

function turn(): MemoryTurn {
  const memoryTurn = turnStorage.getStore()
  if (memoryTurn) return memoryTurn
  throw new Error('Long-term memory belongs to an actor: call this inside a turn.')
}
