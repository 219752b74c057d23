// A memory store of the owner.

import type { MemoryStore } from '@strands-agents/sdk'

/** Any store of Strands; `forget` calls `erase`. */
export type OwnStore = MemoryStore & { readonly erase?: (actor: string) => unknown }
