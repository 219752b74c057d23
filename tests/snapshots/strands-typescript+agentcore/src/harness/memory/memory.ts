// Long-term memory for your own code, such as a tool: what is remembered of the present actor.

import { type AddOptions, current, type FindOptions, type Found } from './recall.ts'
import type { MemoryTurn } from './recall.ts'

export type { Found, Hit } from './recall.ts'

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
