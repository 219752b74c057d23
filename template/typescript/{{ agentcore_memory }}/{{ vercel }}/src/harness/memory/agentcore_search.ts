// Search AgentCore memories with the AWS client.

import type { MemoryRecordSummary } from '@aws-sdk/client-bedrock-agentcore'

import { AgentCore, filtersFor } from './agentcore.ts'
import type { Memory, MemoryRecord, Metadata } from './base.ts'
import type { Namespace, Who } from './namespaces.ts'

/** A memory that the AWS client searches. */
export class AgentCoreMemory extends AgentCore implements Memory {
  async retrieve(
    namespace: Namespace,
    query: string,
    topK: number,
    _identity: Who,
    metadata: Metadata,
  ): Promise<MemoryRecord[]> {
    const searchCriteria = { searchQuery: query, topK, ...filtersFor(metadata) }
    const request = { ...namespace.parameter, searchCriteria, maxResults: topK }
    const reply = await this.call('recall', (client, memoryId, stop) =>
      client.retrieveMemoryRecords({ memoryId, ...request }, stop),
    )
    return (reply.memoryRecordSummaries ?? []).map(recordOf)
  }
}

function recordOf(summary: MemoryRecordSummary): MemoryRecord {
  return {
    id: summary.memoryRecordId ?? '',
    text: summary.content?.text ?? '',
    score: summary.score ?? 0,
    namespace: summary.namespaces?.[0] ?? '',
    createdAt: summary.createdAt?.toISOString() ?? '',
  }
}
