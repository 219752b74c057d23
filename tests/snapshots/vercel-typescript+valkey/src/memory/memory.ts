// For the agent's own code, as in its tools: what is remembered long-term of whoever talks.

import { current, type Turn } from './long_term.ts'
import type { Found } from './recall.ts'

/**
 * What is remembered of whoever talks, best first; [] also when the memory does not answer.
 *
 * Throws Error outside turns: there, LongTerm.search takes who it is about.
 */
export async function search(query: string): Promise<Found[]> {
  return await turn().recall.search(query)
}

/**
 * Remember a text of whoever talks, when the turn commits.
 *
 * Throws RangeError for a blank text, and Error outside turns and without a memory that may be
 * written to.
 */
export function add(text: string): void {
  turn().add(text)
}

function turn(): Turn {
  const found = current.getStore()
  if (found) return found
  throw new Error('Only a turn knows whose memory it is; LongTerm.search and add ask who.')
}
