// The kinds of long-term memory that this project supports.

import type { Kind } from './kind.ts'
import { knowledgeBase } from './knowledge_base_kind.ts'

/** By the type of the backend. */
export const KINDS: Partial<Record<string, Kind>> = {
  knowledge_base: knowledgeBase,
}
