// The type of an owner's memory store.

import type { MemoryStore } from '@strands-agents/sdk'

/** A Strands memory store; `forget` calls `erase` if it exists. */
export type OwnStore = MemoryStore & { readonly erase?: (actor: string) => unknown }
