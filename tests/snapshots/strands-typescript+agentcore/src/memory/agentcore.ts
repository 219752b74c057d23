// AgentCore Memory: one memory by the id in a secret, and the clients that all of them share.

import type { BedrockAgentCore, SearchCriteria } from '@aws-sdk/client-bedrock-agentcore'
import type { BedrockAgentCoreControl } from '@aws-sdk/client-bedrock-agentcore-control'

import type { SecretRef } from '../collections/fields.ts'
import { SecretError, type Secrets } from '../collections/secrets.ts'
import { describe } from '../log.ts'
import {
  bounded,
  type Memory,
  type MemoryEvent,
  MemoryRefused,
  MemoryUnavailable,
  type Metadata,
  type Resource,
} from './base.ts'
import { eventSession, type Namespace } from './namespaces.ts'
import { withRetries } from './retry_queue.ts'

const PAGE = 100 // the most that the service gives, or takes, at once
const WRITE_SECONDS = 10
const REFUSED = ['ValidationException', 'InvalidInputException', 'SerializationException']
const BUSY = [409, 429]

interface Client {
  recall: BedrockAgentCore
  record: BedrockAgentCore
  control: BedrockAgentCoreControl
}
type Page = { memoryId: string; maxResults: number; nextToken: string | undefined }
type Stop = { abortSignal: AbortSignal }
type Use<K extends keyof Client, T> = (
  client: Client[K],
  memoryId: string,
  stop: Stop,
) => Promise<T>
type Failed = { name: string; $metadata?: { httpStatusCode?: number } }

/** One client of each kind and region, imported when it is used. Each tries once, in its time. */
export class Clients {
  readonly #recallSeconds: number
  readonly #clients = new Map<string, Promise<Client[keyof Client]>>()

  constructor(recallSeconds: number) {
    this.#recallSeconds = recallSeconds
  }

  get<K extends keyof Client>(kind: K, region: string): Promise<Client[K]> {
    const name = `${kind} ${region}`
    const known = this.#clients.get(name) ?? this.#connect(kind, region)
    this.#clients.set(name, known)
    return known as Promise<Client[K]>
  }

  secondsOf(kind: keyof Client): number {
    return kind === 'recall' ? this.#recallSeconds : WRITE_SECONDS
  }

  /** Close the connections. */
  async close(): Promise<void> {
    const clients = await Promise.allSettled(this.#clients.values())
    this.#clients.clear()
    for (const client of clients) if (client.status === 'fulfilled') client.value.destroy()
  }

  async #connect(kind: keyof Client, region: string): Promise<Client[keyof Client]> {
    // The signal of each call bounds its time; the timer of that warning would outlive a failure.
    const requestHandler = { socketAcquisitionWarningTimeout: 1 }
    const config = { region, maxAttempts: 1, requestHandler }
    if (kind === 'control') {
      const aws = await import('@aws-sdk/client-bedrock-agentcore-control')
      return new aws.BedrockAgentCoreControl(config)
    }
    const aws = await import('@aws-sdk/client-bedrock-agentcore')
    return new aws.BedrockAgentCore(config)
  }
}

/** Return the part of the search criteria for records that have this metadata. */
export function filtersFor(metadata: Metadata): Pick<SearchCriteria, 'metadataFilters'> {
  const found = Object.entries(metadata).map(([metadataKey, stringValue]) => ({
    left: { metadataKey },
    operator: 'EQUALS_TO' as const,
    right: { metadataValue: { stringValue } },
  }))
  return found.length > 0 ? { metadataFilters: found } : {}
}

/** The memory whose id or ARN a secret holds; the adapter adds the search of its framework. */
export class AgentCore implements Omit<Memory, 'retrieve'> {
  readonly contact: string
  readonly region: string
  readonly clients: Clients
  readonly #ref: SecretRef
  readonly #secrets: Secrets
  #resource: Promise<Resource> | null = null

  constructor(ref: SecretRef, region: string, secrets: Secrets, clients: Clients) {
    this.#ref = ref
    this.#secrets = secrets
    this.region = region
    this.clients = clients
    this.contact = `the AgentCore memory of secret '${ref.reference}' in ${region}`
  }

  /** Return the id or the ARN of the memory. Throws MemoryUnavailable. */
  async memoryId(): Promise<string> {
    try {
      return await this.#secrets.get(this.#ref)
    } catch (error) {
      if (!(error instanceof SecretError)) throw error
      throw new MemoryUnavailable(error.message, { isTransient: false })
    }
  }

  async createEvent(given: MemoryEvent): Promise<void> {
    const { identity, utterances, metadata, token, at, projectId } = given
    const entries = Object.entries(metadata).map(([key, stringValue]) => [key, { stringValue }])
    const event = {
      actorId: identity.actor,
      sessionId: eventSession(identity.sessionId),
      eventTimestamp: at,
      payload: utterances.map(([role, text]) => ({ conversational: { role, content: { text } } })),
      clientToken: token,
      ...(entries.length > 0 && { metadata: Object.fromEntries(entries) }),
    }
    // The service allows keys in lower case only.
    const variables = { extractionConfig: { namespaceVariables: { projectid: projectId ?? '' } } }
    await this.call('record', (client, memoryId, stop) =>
      client.createEvent({ memoryId, ...event, ...(projectId !== null && variables) }, stop),
    )
  }

  async sessions(actor: string): Promise<string[]> {
    const replies = this.#pages((client, page, stop) =>
      client.listSessions({ ...page, actorId: actor }, stop),
    )
    const found: string[] = []
    for await (const { sessionSummaries: all = [] } of replies) {
      found.push(...all.map((one) => one.sessionId!))
    }
    return found
  }

  async *events(actor: string, session: string): AsyncGenerator<string[]> {
    const which = { actorId: actor, sessionId: session, includePayloads: false }
    const replies = this.#pages((client, page, stop) =>
      client.listEvents({ ...page, ...which }, stop),
    )
    for await (const { events = [] } of replies) yield events.map((one) => one.eventId!)
  }

  async deleteEvent(actor: string, session: string, event: string): Promise<void> {
    const which = { actorId: actor, sessionId: session, eventId: event }
    await this.#retry(async (client, memoryId, stop) => {
      await client.deleteEvent({ memoryId, ...which }, stop).catch((error) => {
        if (error.name !== 'ResourceNotFoundException') throw error
      })
    })
  }

  async *records(namespace: Namespace): AsyncGenerator<string[]> {
    const replies = this.#pages((client, page, stop) =>
      client.listMemoryRecords({ ...page, ...namespace.wire }, stop),
    )
    for await (const { memoryRecordSummaries: all = [] } of replies) {
      const held = all.filter((row) => row.namespaces?.some((one) => namespace.holds(one)))
      yield held.map((row) => row.memoryRecordId!)
    }
  }

  async deleteRecords(ids: readonly string[]): Promise<string[]> {
    const records = ids.map((id) => ({ memoryRecordId: id }))
    const { successfulRecords: deleted = [] } = await this.#retry((client, memoryId, stop) =>
      client.batchDeleteMemoryRecords({ memoryId, records }, stop),
    )
    return deleted.map((one) => one.memoryRecordId!)
  }

  /** Return the resource as GetMemory describes it; an answer is kept. */
  async describe(): Promise<Resource> {
    this.#resource ??= this.call('control', async (client, memoryId, stop) => {
      const name = memoryId.split('/').at(-1) ?? '' // the control plane takes no ARN
      const { memory } = await client.getMemory({ memoryId: name }, stop)
      if (memory?.status !== 'ACTIVE') this.#resource = null // it will be another soon
      return memory ?? {}
    })
    return await this.#resource.catch((error) => {
      this.#resource = null
      throw error
    })
  }

  async *#pages<T extends { nextToken?: string | undefined }>(
    ask: (client: BedrockAgentCore, page: Page, stop: Stop) => Promise<T>,
  ): AsyncGenerator<T> {
    let nextToken: string | undefined
    do {
      const asked = { maxResults: PAGE, nextToken }
      const reply = await this.#retry((client, memoryId, stop) =>
        ask(client, { memoryId, ...asked }, stop),
      )
      yield reply
      nextToken = reply.nextToken
    } while (nextToken)
  }

  async #retry<T>(use: Use<'record', T>): Promise<T> {
    return await withRetries(() => this.call('record', use))
  }

  /** Call the service within its time limit. Throws MemoryUnavailable. */
  protected async call<K extends keyof Client, T>(kind: K, use: Use<K, T>): Promise<T> {
    const [memoryId, seconds] = [await this.memoryId(), this.clients.secondsOf(kind)]
    const abortSignal = AbortSignal.timeout(seconds * 1000)
    const why = `AgentCore Memory: no answer within ${seconds} s`
    try {
      return await bounded(abortSignal, why, async () =>
        use(await this.clients.get(kind, this.region), memoryId, { abortSignal }),
      )
    } catch (error) {
      if (error instanceof MemoryUnavailable) throw error
      const { name: code, $metadata: { httpStatusCode: status = 500 } = {} } = error as Failed
      const isTransient = status >= 500 || BUSY.includes(status)
      const Failure = REFUSED.includes(code) ? MemoryRefused : MemoryUnavailable
      throw new Failure(`AgentCore Memory: ${describe(error)}`, { isTransient, code })
    }
  }
}
