// One memory of AgentCore Memory: what is asked of it, and what its answers mean.

import type { MemoryRecordSummary } from '@aws-sdk/client-bedrock-agentcore'

import type { Client, Clients, Kind, Stop } from './agentcore_client.ts'
import type { Event, Memory, MemoryRecord, Resource } from './memories.ts'
import { eventSession, type Place } from './namespaces.ts'
import { statusOf } from './s3_client.ts'
import type { Secrets } from './secrets.ts'

const PAGE = 100 // the most that the service gives, or takes, at once
type Page = { memoryId: string; maxResults: number; nextToken: string | undefined }

/** The memory that a secret names. `clients` are shared by all memories of a process. */
export class AgentCore implements Memory {
  readonly contact: string
  readonly clients: Clients
  readonly region: string
  /** The id or the ARN of the memory. Throws Unavailable. */
  readonly memoryId: () => Promise<string>
  #resource: Promise<Resource> | null = null

  constructor(reference: string, region: string, secrets: Secrets, clients: Clients) {
    this.region = region
    this.memoryId = () => secrets.get(reference)
    this.clients = clients
    this.contact = `the AgentCore memory of secret '${reference}' in ${region}`
  }

  async retrieve(place: Place, query: string, topK: number, stop?: AbortSignal) {
    const asked = { ...place.wire, searchCriteria: { searchQuery: query, topK }, maxResults: topK }
    const reply = await this.#call('recall', stop, (client, memoryId, limit) =>
      client.retrieveMemoryRecords({ memoryId, ...asked }, limit),
    )
    return (reply.memoryRecordSummaries ?? []).map(recordOf)
  }

  async createEvent({ who, items, token, at, project }: Event, stop?: AbortSignal): Promise<void> {
    const given = {
      actorId: who.actor,
      sessionId: eventSession(who.sessionId),
      eventTimestamp: at,
      payload: items.map(([role, text]) => ({ conversational: { role, content: { text } } })),
      clientToken: token,
    }
    // The service allows keys in lower case only.
    const variables = { extractionConfig: { namespaceVariables: { projectid: project ?? '' } } }
    await this.#call('record', stop, (client, memoryId, limit) =>
      client.createEvent({ memoryId, ...given, ...(project !== null && variables) }, limit),
    )
  }

  async sessions(actor: string): Promise<string[]> {
    const replies = await this.#pages((client, page, limit) =>
      client.listSessions({ ...page, actorId: actor }, limit),
    )
    return replies.flatMap(({ sessionSummaries: all = [] }) => all.map((one) => one.sessionId!))
  }

  async events(actor: string, session: string): Promise<string[]> {
    const which = { actorId: actor, sessionId: session, includePayloads: false }
    const replies = await this.#pages((client, page, limit) =>
      client.listEvents({ ...page, ...which }, limit),
    )
    return replies.flatMap(({ events: all = [] }) => all.map((one) => one.eventId!))
  }

  async deleteEvent(actor: string, session: string, event: string): Promise<void> {
    const which = { actorId: actor, sessionId: session, eventId: event }
    await this.#call('record', null, async (client, memoryId, limit) => {
      await client.deleteEvent({ memoryId, ...which }, limit).catch((error) => {
        if (statusOf(error) !== 404) throw error
      })
    })
  }

  async records(place: Place, nextToken?: string): Promise<[string[], string | undefined]> {
    const reply = await this.#call('record', null, (client, memoryId, limit) =>
      client.listMemoryRecords({ memoryId, nextToken, maxResults: PAGE, ...place.wire }, limit),
    )
    const { memoryRecordSummaries: rows = [], nextToken: more } = reply
    const held = rows.filter(({ namespaces }) => namespaces?.some((one) => place.holds(one)))
    return [held.map(({ memoryRecordId: id }) => id!), more]
  }

  async deleteRecords(ids: readonly string[]): Promise<number> {
    let deleted = 0
    for (let start = 0; start < ids.length; start += PAGE) {
      const records = ids.slice(start, start + PAGE).map((id) => ({ memoryRecordId: id }))
      const reply = await this.#call('record', null, (client, memoryId, limit) =>
        client.batchDeleteMemoryRecords({ memoryId, records }, limit),
      )
      deleted += reply.successfulRecords?.length ?? 0
    }
    return deleted
  }

  /** The resource as GetMemory tells it; an answer is kept, also one that came too late. */
  async describe(): Promise<Resource> {
    this.#resource ??= this.#call('control', null, async (client, memoryId, limit) => {
      const name = memoryId.split('/').at(-1) ?? '' // the control plane takes no ARN
      const { memory } = await client.getMemory({ memoryId: name }, limit)
      const { status = '', strategies = [], namespaceKeys: keys = [] } = memory ?? {}
      const all = strategies.map((one) => {
        const templates = one.namespaceTemplates?.length ? one.namespaceTemplates : one.namespaces
        return { id: one.strategyId!, namespaces: templates ?? [] }
      })
      if (status !== 'ACTIVE') this.#resource = null // it will be another soon
      return { status, strategies: all, namespaceKeys: keys.map(({ key }) => key!) }
    })
    return await this.#resource.catch((error) => {
      this.#resource = null
      throw error
    })
  }

  async #pages<T extends { nextToken?: string | undefined }>(
    ask: (client: Client['record'], page: Page, limit: Stop) => Promise<T>,
  ): Promise<T[]> {
    const replies: T[] = []
    do {
      const asked = { maxResults: PAGE, nextToken: replies.at(-1)?.nextToken }
      const reply = await this.#call('record', null, (client, memoryId, limit) =>
        ask(client, { memoryId, ...asked }, limit),
      )
      replies.push(reply)
    } while (replies.at(-1)?.nextToken)
    return replies
  }

  async #call<K extends Kind, T>(
    kind: K,
    stop: AbortSignal | null | undefined,
    use: (client: Client[K], memoryId: string, limit: Stop) => Promise<T>,
  ): Promise<T> {
    const memoryId = await this.memoryId()
    const run = (client: Client[K], limit: Stop) => use(client, memoryId, limit)
    return await this.clients.run(kind, this.region, run, stop)
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
