// Further memories of yours, beside the collections: any store of Strands. Make this file your own.

import type { MemoryStore } from '@strands-agents/sdk'

import type { Who } from './namespaces.ts'

/**
 * The stores of one turn. It is called in each turn, so clients belong outside of it.
 *
 * They are searched with the collections, within RECALL_TIMEOUT_SECONDS. What a turn commits goes
 * to those that are writable, beside the turns and again until it succeeds: its messages to a
 * store with `addMessages`, else facts that the agent's model finds in them. `extraction` may
 * name another extractor; its trigger is not used. A writable store with `add` also gets the texts
 * that a tool or your code adds. `forget` calls `store.erase(actor)` where a store has it, and
 * reports a writable store without it. For example, a knowledge base:
 *
 *     const runtimeClient = new BedrockAgentRuntimeClient({ region: 'eu-west-1' })
 *
 *     export function ownStores(who: Who): MemoryStore[] {
 *       const knowledgeBaseId = 'KB12345678'
 *       const config = { knowledgeBaseId, knowledgeBaseType: 'VECTOR' as const, runtimeClient }
 *       return [new BedrockKnowledgeBaseStore({ name: 'manuals', config })]
 *     }
 *
 * A store that keeps what people say needs `who.actor` in its scope, so that they stay apart.
 */
export function ownStores(_who: Who): MemoryStore[] {
  return []
}
