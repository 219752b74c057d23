// The public names of long-term memory: for tools, routes, jobs and own_memory.ts.

import type { AddOptions, FindOptions, Found } from './hits.ts'
import { current, type MemoryTurn } from './recall.ts'

export { type ActorMemory, NotAdded, ofActor } from './actor_memory.ts'
export type { Metadata, Turns, Utterance } from './base.ts'
export { type Found, type Hit, type InjectionContext, memoryBlock } from './hits.ts'
export type { Who } from './namespaces.ts'
export { MemoryPolicy } from './policy.ts'

/**
 * Return what is remembered of the actor, best first; `failures` names stores that failed.
 *
 * Of all stores or some by name, at most so many of each, and only records with this metadata.
 * Throws RangeError for an unknown store or invalid values, and Error outside a turn.
 */
export async function search(query: string, options: FindOptions = {}): Promise<Found> {
  return await turn().find(query, options)
}

/**
 * Remember a text about the actor when the turn commits.
 *
 * In all stores that take texts, or some by name; the log names one that fails. Throws
 * RangeError for a blank text, an unknown store or invalid metadata, and Error outside a turn or
 * where the agent has no memory that it may write to.
 */
export function add(text: string, options: AddOptions = {}): void {
  turn().add(text, options)
}

function turn(): MemoryTurn {
  const found = current.getStore()
  if (found) return found
  throw new Error('Long-term memory belongs to an actor: call this inside a turn.')
}
