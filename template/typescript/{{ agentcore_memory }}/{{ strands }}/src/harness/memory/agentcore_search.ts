// Search AgentCore memories with the AgentCore SDK's store for Strands.

import type {
  BedrockAgentCoreClient,
  RetrieveMemoryRecordsCommand,
} from '@aws-sdk/client-bedrock-agentcore'
import type { MemoryEntry } from '@strands-agents/sdk'

import { AgentCore, filtersFor } from './agentcore.ts'
import type { Memory, MemoryCollection, MemoryRecord, Metadata } from './base.ts'
import { eventSession, type Namespace, type Who } from './namespaces.ts'

const load = () => import('bedrock-agentcore/memory/strands')

/** A memory that the SDK's store searches. */
export class AgentCoreMemory extends AgentCore implements Memory {
  override async warmUp(collection: MemoryCollection): Promise<void> {
    // The import takes longer than a search's time limit.
    await Promise.allSettled([super.warmUp(collection), collection.isRead ? load() : null])
  }

  async retrieve(
    namespace: Namespace,
    query: string,
    topK: number,
    identity: Who,
    metadata: Metadata,
  ): Promise<MemoryRecord[]> {
    const { AgentCoreMemoryStore } = await load()
    const entries = await this.call('recall', async (client, memoryId, { abortSignal }) => {
      // The SDK reads one page of 20 records by default, without filters or a signal.
      const send = (command: RetrieveMemoryRecordsCommand) => {
        command.input.maxResults = topK
        Object.assign(command.input.searchCriteria!, filtersFor(metadata))
        return client.send(command, { abortSignal })
      }
      const store = new AgentCoreMemoryStore({
        memoryId,
        actorId: identity.actor,
        sessionId: eventSession(identity.sessionId),
        ...namespace.parameter,
        maxSearchResults: topK,
        client: { send } as unknown as BedrockAgentCoreClient,
      })
      return await store.search(query)
    })
    return entries.map(recordOf)
  }
}

function recordOf({ content, metadata = {} }: MemoryEntry): MemoryRecord {
  const { _id = '', _score = 0, _namespaces: namespaces = [], _createdAt = '' } = metadata
  const [namespace = ''] = namespaces as string[]
  const details = { id: String(_id), score: Number(_score), createdAt: String(_createdAt) }
  return { text: content, namespace, ...details }
}
