// A collection as the SDK's memory manager sees it: it is read; texts wait for the commit.

import type { BedrockAgentCoreClient } from '@aws-sdk/client-bedrock-agentcore'
import type { RetrieveMemoryRecordsCommand } from '@aws-sdk/client-bedrock-agentcore'
import type { MemoryEntry, MemoryStore } from '@strands-agents/sdk'

import { isBlank } from '../contract.ts'
import { AgentCore } from './agentcore.ts'
import type { Turn } from './long_term.ts'
import { eventSession } from './namespaces.ts'
import { type Found, type Reader, retrieve, type Retrieve } from './recall.ts'

/** What the SDK sees of a collection; `top_k` and `relevance_score` are those of its file. */
export class CollectionStore implements MemoryStore {
  readonly name: string
  readonly writable: boolean
  readonly #turn: Turn
  readonly #readers: readonly Reader[]

  constructor(name: string, turn: Turn, readers: readonly Reader[], writable: boolean) {
    this.name = name
    this.writable = writable
    this.#turn = turn
    this.#readers = readers
  }

  /** What fits a query. Never throws, and ends in time. */
  async search(query: string): Promise<MemoryEntry[]> {
    const found = await this.#turn.recall.search(query, this.#readers, asking(this.#turn))
    return found.map(({ text, id, score, namespace, createdAt }) => {
      const metadata = { _id: id, _score: score, _namespaces: [namespace], _createdAt: createdAt }
      return { content: text, metadata }
    })
  }

  /** Remember a text, if the turn commits. */
  async add(content: string): Promise<void> {
    this.#turn.add(content)
  }
}

/** Ask one place by the store that the SDK has for AgentCore Memory. */
function asking({ who }: Turn): Retrieve {
  return async (reader, place, wanted, query, stop) => {
    const { collectionId, memory } = reader
    if (!(memory instanceof AgentCore)) return await retrieve(reader, place, wanted, query, stop)
    const { AgentCoreMemoryStore } = await import('bedrock-agentcore/memory/strands')
    const store = new AgentCoreMemoryStore({
      memoryId: await memory.memoryId(),
      actorId: who.actor,
      sessionId: eventSession(who.sessionId),
      ...place.wire,
      maxSearchResults: wanted.top_k,
      minScore: wanted.relevance_score,
      client: clientOf(memory, stop),
    })
    const found = (await store.search(query)).map((entry) => readEntry(entry, collectionId))
    return found.filter(({ text, namespace }) => !isBlank(text) && place.holds(namespace))
  }
}

/** The client of the memory for the SDK's store, which by itself gets pages of 20 only. */
function clientOf({ clients, region }: AgentCore, stop: AbortSignal): BedrockAgentCoreClient {
  const send = ({ input }: RetrieveMemoryRecordsCommand) => {
    const asked = { ...input, maxResults: input.searchCriteria?.topK }
    return clients.run(
      'recall',
      region,
      (it, limit) => it.retrieveMemoryRecords(asked, limit),
      stop,
    )
  }
  return { send } as unknown as BedrockAgentCoreClient
}

/** What an entry of a store says; where that does not say how well it fits, the score is 0. */
export function readEntry({ content, metadata = {} }: MemoryEntry, collection: string): Found {
  const { _id = '', _score = 0, _namespaces: namespaces = [], _createdAt = '' } = metadata
  const [namespace = ''] = namespaces as string[]
  const known = { id: String(_id), score: Number(_score), createdAt: String(_createdAt) }
  return { text: content, namespace, collection, ...known }
}
