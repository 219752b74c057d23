// The kinds of long-term memory that this project supports.

import { agentcore } from './agentcore_kind.ts'
import type { Kind } from './kind.ts'

/** By the type of the backend. */
export const KINDS: Partial<Record<string, Kind>> = {
  agentcore_memory: agentcore,
}
