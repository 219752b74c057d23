// A memory in Amazon Bedrock AgentCore: its API calls.

import type { BedrockAgentCore, SearchCriteria } from '@aws-sdk/client-bedrock-agentcore'
import type {
  BedrockAgentCoreControl,
  Memory as Description,
} from '@aws-sdk/client-bedrock-agentcore-control'

import { type AgentCoreConfig, backend as agentcore } from '../collections/agentcore_backend.ts'
import type { SecretRef } from '../collections/fields.ts'
import { DEFAULT } from '../collections/memory_backend.ts'
import type { Secrets } from '../collections/secrets.ts'
import { type Call, type Clients, configOf, secretOf, type Stop } from './aws.ts'
import {
  type Entry,
  type Memory,
  type MemoryCollection,
  type MemoryEvent,
  MemoryUnavailable,
  type Metadata,
  type Namespaces,
} from './base.ts'
import { eventSession, type Namespace } from './namespaces.ts'
import { withRetries } from './retry_queue.ts'
import { areWhole, DEFAULT_TEMPLATE, ofStrategies, writtenTemplates } from './strategies.ts'

const PAGE = 100 // maximum number of items per request or reply

/** The memory resource from GetMemory. */
export type Resource = Partial<Description>

interface Client {
  recall: BedrockAgentCore
  record: BedrockAgentCore
  control: BedrockAgentCoreControl
}
type Page = { memoryId: string; maxResults: number; nextToken: string | undefined }
type Use<K extends Call, T> = (client: Client[K], memoryId: string, stop: Stop) => Promise<T>

/** Return the search criteria that select records with this metadata. */
export function filtersFor(metadata: Metadata): Pick<SearchCriteria, 'metadataFilters'> {
  const conditions = Object.entries(metadata).map(([metadataKey, stringValue]) => ({
    left: { metadataKey },
    operator: 'EQUALS_TO' as const,
    right: { metadataValue: { stringValue } },
  }))
  return conditions.length > 0 ? { metadataFilters: conditions } : {}
}

/** An AgentCore memory; its id is in a secret. A subclass adds the framework's search. */
export class AgentCore implements Omit<Memory, 'retrieve'> {
  readonly contact: string
  readonly afterErasure =
    'records of the last turns may still be extracted: run this again in a few minutes'
  readonly #region: string
  readonly #clients: Clients
  readonly #ref: SecretRef
  readonly #secrets: Secrets
  #resource: Promise<Resource> | null = null

  constructor(config: AgentCoreConfig, secrets: Secrets, clients: Clients) {
    const [ref] = agentcore.secretRefs(config)
    this.#ref = ref!
    this.#secrets = secrets
    this.#region = config.region
    this.#clients = clients
    this.contact = `the AgentCore memory of secret '${ref!.reference}' in ${config.region}`
  }

  /** Return the id or the ARN of the memory. Throws MemoryUnavailable. */
  async memoryId(): Promise<string> {
    return await secretOf(this.#secrets, this.#ref)
  }

  async writesTo(): Promise<string> {
    const [name] = (await this.memoryId()).split('/').slice(-1) // the last part of an ARN
    return `${this.#region} ${name}`
  }

  async warmUp({ isRead, isWritable, namespaces }: MemoryCollection): Promise<void> {
    const isWhole = namespaces && areWhole(Object.keys(namespaces))
    await Promise.allSettled([
      isRead || isWritable ? this.client('recall') : null,
      isRead && !isWhole ? this.client('control') : null,
    ])
  }

  async namespaces({ namespaces: declared, lifetime }: MemoryCollection): Promise<Namespaces> {
    if (declared && areWhole(Object.keys(declared))) return declared
    const { strategies = [] } = await this.describe()
    const isPrivate = lifetime === 'user' // other namespaces are shared between actors
    const paths = declared
      ? Object.entries(declared).flatMap(([template, config]) =>
          ofStrategies(template, strategies).map((path) => [path, config] as const),
        )
      : writtenTemplates(strategies)
          .filter((template) => !isPrivate || template.includes('{actorId}'))
          .map((template) => [template, DEFAULT] as const)
    if (declared && paths.length === 0) {
      throw new MemoryUnavailable('no strategy of the memory writes to them')
    }
    return Object.fromEntries(paths)
  }

  async templates({ namespaces }: MemoryCollection): Promise<string[]> {
    const { strategies = [] } = await withRetries(() => this.describe())
    const declared = Object.keys(namespaces ?? {})
    const paths = declared.flatMap((template) => ofStrategies(template, strategies))
    // Turns do not search all of them. The last templates include deleted strategies.
    return [...paths, ...writtenTemplates(strategies), ...declared, DEFAULT_TEMPLATE]
  }

  async createEvent(memoryEvent: MemoryEvent): Promise<void> {
    const { identity, utterances, metadata, token, at, projectId } = memoryEvent
    const entries = Object.entries(metadata).map(([key, stringValue]) => [key, { stringValue }])
    const event = {
      actorId: identity.actor,
      sessionId: eventSession(identity.sessionId),
      eventTimestamp: at,
      payload: utterances.map(([role, text]) => ({ conversational: { role, content: { text } } })),
      clientToken: token,
      ...(entries.length > 0 && { metadata: Object.fromEntries(entries) }),
    }
    // The service requires lower-case keys.
    const variables = { extractionConfig: { namespaceVariables: { projectid: projectId ?? '' } } }
    await this.call('record', (client, memoryId, stop) =>
      client.createEvent({ memoryId, ...event, ...(projectId !== null && variables) }, stop),
    )
  }

  async sessions(actor: string): Promise<string[]> {
    const replies = this.#pages((client, page, stop) =>
      client.listSessions({ ...page, actorId: actor }, stop),
    )
    const ids: string[] = []
    for await (const { sessionSummaries = [] } of replies) {
      ids.push(...sessionSummaries.map(({ sessionId }) => sessionId!))
    }
    return ids
  }

  async actors(): Promise<string[]> {
    const replies = this.#pages((client, page, stop) => client.listActors(page, stop))
    const ids: string[] = []
    for await (const { actorSummaries = [] } of replies) {
      ids.push(...actorSummaries.map(({ actorId }) => actorId!))
    }
    return ids
  }

  async *events(actor: string, session: string): AsyncGenerator<string[]> {
    const selection = { actorId: actor, sessionId: session, includePayloads: false }
    const replies = this.#pages((client, page, stop) =>
      client.listEvents({ ...page, ...selection }, stop),
    )
    for await (const { events = [] } of replies) yield events.map(({ eventId }) => eventId!)
  }

  async deleteEvent(actor: string, session: string, event: string): Promise<void> {
    const selection = { actorId: actor, sessionId: session, eventId: event }
    await this.#retry(async (client, memoryId, stop) => {
      await client.deleteEvent({ memoryId, ...selection }, stop).catch((error) => {
        if (error.name !== 'ResourceNotFoundException') throw error
      })
    })
  }

  async *records(namespace: Namespace): AsyncGenerator<string[]> {
    for await (const page of this.entries(namespace)) yield page.map(([id]) => id)
  }

  async *entries(namespace: Namespace): AsyncGenerator<Entry[]> {
    const replies = this.#pages((client, page, stop) =>
      client.listMemoryRecords({ ...page, ...namespace.parameter }, stop),
    )
    for await (const { memoryRecordSummaries: all = [] } of replies) {
      const entries = all.map((it): Entry => [it.memoryRecordId!, it.namespaces ?? []])
      yield entries.filter(([, paths]) => paths.some((path) => namespace.holds(path)))
    }
  }

  async deleteRecords(ids: readonly string[]): Promise<string[]> {
    const records = ids.map((id) => ({ memoryRecordId: id }))
    const { successfulRecords: deleted = [] } = await this.#retry((client, memoryId, stop) =>
      client.batchDeleteMemoryRecords({ memoryId, records }, stop),
    )
    return deleted.map(({ memoryRecordId }) => memoryRecordId!)
  }

  /** Return the memory resource from GetMemory. Caches replies. */
  async describe(): Promise<Resource> {
    this.#resource ??= this.call('control', async (client, memoryId, stop) => {
      const name = memoryId.split('/').at(-1) ?? '' // the control plane does not accept ARNs
      const { memory } = await client.getMemory({ memoryId: name }, stop)
      if (memory?.status !== 'ACTIVE') this.#resource = null // the status will change soon
      return memory ?? {}
    })
    return await this.#resource.catch((error) => {
      this.#resource = null
      throw error
    })
  }

  async *#pages<T extends { nextToken?: string | undefined }>(
    list: (client: BedrockAgentCore, page: Page, stop: Stop) => Promise<T>,
  ): AsyncGenerator<T> {
    let nextToken: string | undefined
    do {
      const request = { maxResults: PAGE, nextToken }
      const reply = await this.#retry((client, memoryId, stop) =>
        list(client, { memoryId, ...request }, stop),
      )
      yield reply
      nextToken = reply.nextToken
    } while (nextToken)
  }

  async #retry<T>(use: Use<'record', T>): Promise<T> {
    return await withRetries(() => this.call('record', use))
  }

  /** Return a client of the service; the first call creates it. */
  protected async client<K extends Call>(call: K): Promise<Client[K]> {
    const region = this.#region
    const name = call === 'control' ? call : 'data'
    const client = this.#clients.get(`agentcore ${name} ${region}`, async () => {
      if (call !== 'control') {
        const aws = await import('@aws-sdk/client-bedrock-agentcore')
        return new aws.BedrockAgentCore(configOf(region))
      }
      const aws = await import('@aws-sdk/client-bedrock-agentcore-control')
      return new aws.BedrockAgentCoreControl(configOf(region))
    })
    return (await client) as Client[K]
  }

  /** Call the service within a time limit. Throws MemoryUnavailable. */
  protected async call<K extends Call, T>(call: K, use: Use<K, T>): Promise<T> {
    const memoryId = await this.memoryId()
    return await this.#clients.run('AgentCore Memory', call, async (stop) =>
      use(await this.client(call), memoryId, stop),
    )
  }
}
