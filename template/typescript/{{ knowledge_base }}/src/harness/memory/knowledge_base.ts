// A memory in an Amazon Bedrock knowledge base: its API calls.
//
// Texts are documents in a data source of type CUSTOM. Their attribute `namespace` names the owner.
// Their ids also begin with the namespace, because lists of documents omit attributes.

import type {
  BedrockAgent,
  DataSource,
  DocumentStatus,
  KnowledgeBase as Description,
  KnowledgeBaseDocument,
} from '@aws-sdk/client-bedrock-agent'
import type {
  BedrockAgentRuntime,
  KnowledgeBaseRetrievalResult,
} from '@aws-sdk/client-bedrock-agent-runtime'

import { backend, type KnowledgeBaseConfig } from '../collections/knowledge_base_backend.ts'
import type { Secrets } from '../collections/secrets.ts'
import { log } from '../log.ts'
import { type Call, type Clients, configOf, secretOf, type Stop } from './aws.ts'
import {
  type Entry,
  type Memory,
  type MemoryCollection,
  type MemoryEvent,
  type MemoryRecord,
  MemoryUnavailable,
  type Metadata,
  type Namespaces,
} from './base.ts'
import { defaultTemplate, type Namespace, resolve, type Who } from './namespaces.ts'
import { withRetries } from './retry_queue.ts'

const PAGE = 1000 // maximum number of items per list
const DOCUMENTS = 10 // maximum number of items per write
const MAX_KEY_CHARS = 100 // maximum length of a filter key
// Statuses of deleted documents, and of documents that the service rejected.
const DELETED: DocumentStatus[] = ['DELETING', 'DELETE_IN_PROGRESS', 'NOT_FOUND']
export const REJECTED: DocumentStatus[] = ['FAILED', 'IGNORED']
const PENDING: DocumentStatus[] = ['STARTING', 'PENDING', 'IN_PROGRESS']
const STATUS_PAUSE = 5000 // milliseconds between checks of document statuses

/** A document of the data source; `reason` explains its status. */
export interface DocumentDetail {
  readonly id: string
  readonly status: DocumentStatus
  readonly reason: string | undefined
}

type Location = { knowledgeBaseId: string; dataSourceId: string }
type Client = { recall: BedrockAgentRuntime; record: BedrockAgent; control: BedrockAgent }

/** A knowledge base; its id is in a secret. */
export class KnowledgeBase implements Memory {
  readonly contact: string
  readonly afterErasure = 'searches may return deleted documents for a few more minutes'
  readonly #config: KnowledgeBaseConfig
  readonly #template: string
  readonly #secrets: Secrets
  readonly #clients: Clients
  #unconfirmed: string[] = [] // ids of documents with unknown status
  #nextCheck = 0

  constructor(config: KnowledgeBaseConfig, lifetime: string, secrets: Secrets, clients: Clients) {
    this.#config = config
    this.#secrets = secrets
    this.#clients = clients
    // Turns are written to the first namespace only.
    const [first = defaultTemplate(lifetime)] = Object.keys(config.retrieval_config ?? {})
    this.#template = first
    const reference = config.knowledge_base_id_secret
    this.contact = `the knowledge base of secret '${reference}' in ${config.region}`
  }

  async namespaces({ namespaces }: MemoryCollection): Promise<Namespaces> {
    return namespaces ?? {}
  }

  async templates({ namespaces }: MemoryCollection): Promise<string[]> {
    return Object.keys(namespaces ?? {})
  }

  async writesTo(): Promise<string> {
    return '' // collections can share a data source: their namespaces differ
  }

  async warmUp({ isRead, isWritable }: MemoryCollection): Promise<void> {
    await Promise.allSettled([
      isRead ? this.#client('recall') : null,
      isWritable ? this.#client('record') : null,
    ])
  }

  async retrieve(
    namespace: Namespace,
    query: string,
    topK: number,
    _identity: Who,
    metadata: Metadata,
  ): Promise<MemoryRecord[]> {
    const attributes = Object.entries({ ...metadata, namespace: namespace.path })
    const filters = attributes.map(([key, value]) => ({ equals: { key, value } }))
    const filter = filters.length > 1 ? { andAll: filters } : filters[0]!
    const search = { numberOfResults: topK, filter }
    const knowledgeBaseId = await this.#baseId()
    const request = { knowledgeBaseId, retrievalQuery: { text: query } }
    const retrievalConfiguration = { [`${this.#config.search}SearchConfiguration`]: search }
    const reply = await this.#call('recall', (client, stop) =>
      client.retrieve({ ...request, retrievalConfiguration }, stop),
    )
    return (reply.retrievalResults ?? []).flatMap(recordsOf)
  }

  /** Ingest the texts as documents. A retry replaces them with equal documents. */
  async createEvent(event: MemoryEvent): Promise<void> {
    const { path } = resolve(this.#template, event.identity)
    const attributes = { ...event.metadata, namespace: path, created_at: event.at.toISOString() }
    const documents = event.utterances.flatMap(([role, text], number) =>
      role === 'USER' ? [documentOf(`${path}${event.token}-${number}`, text, attributes)] : [],
    )
    for (const chunk of chunksOf(documents)) {
      const location = await this.#location()
      const reply = await this.#call('record', (client, stop) =>
        client.ingestKnowledgeBaseDocuments({ ...location, documents: chunk }, stop),
      )
      for (const { status } of reply.documentDetails ?? []) {
        if (!status || !REJECTED.includes(status)) continue
        throw new MemoryUnavailable(`Knowledge Bases: a document is ${status}`)
      }
      await this.#checkStatuses()
      if (this.#unconfirmed.length === 0) {
        this.#unconfirmed = chunk.map(
          ({ content }) => content!.custom!.customDocumentIdentifier!.id!,
        )
      }
    }
  }

  /** Log the status of documents that were accepted earlier. Never throws. */
  async #checkStatuses(): Promise<void> {
    const ids = this.#unconfirmed
    const now = performance.now()
    if (ids.length === 0 || now < this.#nextCheck) return
    this.#unconfirmed = []
    this.#nextCheck = now + STATUS_PAUSE
    const documentIdentifiers = ids.map((id) => ({
      dataSourceType: 'CUSTOM' as const,
      custom: { id },
    }))
    try {
      const location = await this.#location()
      const { documentDetails = [] } = await this.#call('record', (client, stop) =>
        client.getKnowledgeBaseDocuments({ ...location, documentIdentifiers }, stop),
      )
      const details = documentDetails.map(({ identifier, status }) => ({
        id: identifier?.custom?.id ?? '',
        status: status!,
      }))
      const rejected = details.filter(({ status }) => REJECTED.includes(status)).length
      if (rejected > 0) {
        const problem = 'documents are not indexed: run `check --connect` for the reasons'
        log('ERROR', `${this.contact}: ${rejected} of ${details.length} ${problem}`)
      }
      const pending = details.filter(({ status }) => PENDING.includes(status)).map(({ id }) => id)
      if (this.#unconfirmed.length === 0) this.#unconfirmed = pending
    } catch (error) {
      if (!(error instanceof MemoryUnavailable)) throw error
      log('WARNING', `cannot check whether texts are indexed: ${error.message}`)
    }
  }

  /** Return the knowledge base, its data source if the file names one, and its search type. */
  async describe(): Promise<{
    base: Partial<Description>
    source: Partial<DataSource> | null
    search: string
  }> {
    const { search, data_source_id_secret: hasSource } = this.#config
    const knowledgeBaseId = await this.#baseId()
    const { knowledgeBase: base = {} } = await this.#call('control', (client, stop) =>
      client.getKnowledgeBase({ knowledgeBaseId }, stop),
    )
    if (!hasSource) return { base, source: null, search }
    const location = await this.#location()
    const { dataSource: source = {} } = await this.#call('control', (client, stop) =>
      client.getDataSource(location, stop),
    )
    return { base, source, search }
  }

  async sessions(): Promise<string[]> {
    return []
  }

  async actors(): Promise<string[]> {
    return []
  }

  async *events(): AsyncGenerator<string[]> {}

  async deleteEvent(): Promise<void> {}

  /** Yield the details of all documents in the data source, page by page. */
  async *documents(): AsyncGenerator<DocumentDetail[]> {
    const location = await this.#location()
    let nextToken: string | undefined
    do {
      const request = { ...location, maxResults: PAGE, nextToken }
      const reply = await withRetries(() =>
        this.#call('record', (client, stop) => client.listKnowledgeBaseDocuments(request, stop)),
      )
      yield (reply.documentDetails ?? []).flatMap(({ identifier, status, statusReason }) => {
        const id = identifier?.custom?.id
        return id && status && !DELETED.includes(status)
          ? [{ id, status, reason: statusReason }]
          : []
      })
      nextToken = reply.nextToken
    } while (nextToken)
  }

  async *records(namespace: Namespace): AsyncGenerator<string[]> {
    for await (const page of this.entries(namespace)) yield page.map(([id]) => id)
  }

  async *entries(namespace: Namespace): AsyncGenerator<Entry[]> {
    for await (const page of this.documents()) {
      const inside = page.filter(({ id }) => namespace.holds(pathOf(id)))
      yield inside.map(({ id }): Entry => [id, [pathOf(id)]])
    }
  }

  async deleteRecords(ids: readonly string[]): Promise<string[]> {
    const deleted: string[] = []
    for (const chunk of chunksOf(ids)) {
      const location = await this.#location()
      const documentIdentifiers = chunk.map((id) => ({
        dataSourceType: 'CUSTOM' as const,
        custom: { id },
      }))
      const { documentDetails = [] } = await withRetries(() =>
        this.#call('record', (client, stop) =>
          client.deleteKnowledgeBaseDocuments({ ...location, documentIdentifiers }, stop),
        ),
      )
      for (const { identifier, status } of documentDetails) {
        if (status && DELETED.includes(status)) deleted.push(identifier?.custom?.id ?? '')
      }
    }
    return deleted
  }

  async #baseId(): Promise<string> {
    return await secretOf(this.#secrets, backend.secretRefs(this.#config)[0]!)
  }

  async #location(): Promise<Location> {
    const [, source] = backend.secretRefs(this.#config)
    if (!source) {
      const problem = 'its file has no data source: add data_source_id_secret'
      throw new MemoryUnavailable(problem, { isTransient: false })
    }
    const dataSourceId = await secretOf(this.#secrets, source)
    return { knowledgeBaseId: await this.#baseId(), dataSourceId }
  }

  async #client<K extends Call>(call: K): Promise<Client[K]> {
    const { region } = this.#config
    const client = this.#clients.get(`bedrock ${call === 'recall'} ${region}`, async () => {
      if (call === 'recall') {
        const aws = await import('@aws-sdk/client-bedrock-agent-runtime')
        // The default handler requires HTTP/2, which endpoints outside AWS may not support.
        const { NodeHttpHandler } = await import('@smithy/node-http-handler')
        const { requestHandler, ...more } = configOf(region)
        const handler = new NodeHttpHandler(requestHandler)
        return new aws.BedrockAgentRuntime({ ...more, requestHandler: handler })
      }
      const aws = await import('@aws-sdk/client-bedrock-agent')
      return new aws.BedrockAgent(configOf(region))
    })
    return (await client) as Client[K]
  }

  async #call<K extends Call, T>(
    call: K,
    use: (client: Client[K], stop: Stop) => Promise<T>,
  ): Promise<T> {
    return await this.#clients.run('Knowledge Bases', call, async (stop) =>
      use(await this.#client(call), stop),
    )
  }
}

function pathOf(id: string): string {
  return id.slice(0, id.lastIndexOf('/') + 1)
}

function chunksOf<T>(items: readonly T[]): T[][] {
  const count = Math.ceil(items.length / DOCUMENTS)
  return Array.from({ length: count }, (_, at) => items.slice(at * DOCUMENTS, (at + 1) * DOCUMENTS))
}

function documentOf(id: string, data: string, attributes: Metadata): KnowledgeBaseDocument {
  const inlineAttributes = Object.entries(attributes)
    // The service cannot filter by empty values or longer keys.
    .filter(([key, value]) => value !== '' && key.length <= MAX_KEY_CHARS)
    .map(([key, stringValue]) => ({ key, value: { type: 'STRING' as const, stringValue } }))
  return {
    content: {
      dataSourceType: 'CUSTOM',
      custom: {
        customDocumentIdentifier: { id },
        sourceType: 'IN_LINE',
        inlineContent: { type: 'TEXT', textContent: { data } },
      },
    },
    metadata: { type: 'IN_LINE_ATTRIBUTE', inlineAttributes },
  }
}

function recordsOf(result: KnowledgeBaseRetrievalResult): MemoryRecord[] {
  // Without a score, the rank decides.
  const { content, location, score = 1, metadata = {} } = result
  if (content?.text === undefined) return []
  const [namespace, createdAt] = [metadata.namespace, metadata.created_at].map((value) =>
    typeof value === 'string' ? value : '',
  )
  const id = location?.customDocumentLocation?.id ?? ''
  return [{ id, text: content.text, score, namespace: namespace!, createdAt: createdAt! }]
}
