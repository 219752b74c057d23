// Long-term memory for your own code, such as a tool: what is remembered of the present actor.

import { current, type Hit, type MemoryTurn } from './recall.ts'

export type { Hit } from './recall.ts'

/**
 * Return what is remembered of the actor, best first; [] also when the memory is down.
 *
 * Throws Error outside a turn.
 */
export async function search(query: string): Promise<Hit[]> {
  return await turn().search(query)
}

/**
 * Remember a text about the actor when the turn commits.
 *
 * Throws RangeError for a blank text, and Error outside a turn or where the agent has no memory
 * that it may write to.
 */
export function add(text: string): void {
  turn().add(text)
}

function turn(): MemoryTurn {
  const found = current.getStore()
  if (found) return found
  throw new Error('Long-term memory belongs to an actor: call this inside a turn.')
}
