// A memory in a knowledge base of Amazon Bedrock: its calls and answers.
//
// Texts are documents of a data source of type CUSTOM. The attribute `namespace` of each says whose
// it is, and its id begins with the namespace, because a list of documents shows no attributes.

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

const [PAGE, DOCUMENTS] = [1000, 10] // the most that the service lists, and takes, at once
const MAX_KEY_CHARS = 100 // of what a search can filter by
// Of documents that are gone, and of those that the service did not take.
const GONE: DocumentStatus[] = ['DELETING', 'DELETE_IN_PROGRESS', 'NOT_FOUND']
export const REFUSED: DocumentStatus[] = ['FAILED', 'IGNORED']
const PENDING: DocumentStatus[] = ['STARTING', 'PENDING', 'IN_PROGRESS']
const LOOK_PAUSE = 5000 // milliseconds

/** A document of the data source; the reason is of its status. */
export interface DocumentDetail {
  readonly id: string
  readonly status: DocumentStatus
  readonly reason: string | undefined
}

type Place = { knowledgeBaseId: string; dataSourceId: string }
type Client = { recall: BedrockAgentRuntime; record: BedrockAgent; control: BedrockAgent }

/** The knowledge base whose id a secret holds. */
export class KnowledgeBase implements Memory {
  readonly contact: string
  readonly afterErasure = 'a knowledge base may find deleted documents for some minutes more'
  readonly #config: KnowledgeBaseConfig
  readonly #template: string
  readonly #secrets: Secrets
  readonly #clients: Clients
  #unknown: string[] = [] // documents whose fate is not known
  #nextLook = 0

  constructor(config: KnowledgeBaseConfig, lifetime: string, secrets: Secrets, clients: Clients) {
    this.#config = config
    this.#secrets = secrets
    this.#clients = clients
    // The first namespace is the one that is written to.
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
    return '' // documents of several collections have namespaces of their own
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
    _who: Who,
    metadata: Metadata,
  ): Promise<MemoryRecord[]> {
    const wanted = Object.entries({ ...metadata, namespace: namespace.path })
    const filters = wanted.map(([key, value]) => ({ equals: { key, value } }))
    const filter = filters.length > 1 ? { andAll: filters } : filters[0]!
    const search = { numberOfResults: topK, filter }
    const knowledgeBaseId = await this.#baseId()
    const asked = { knowledgeBaseId, retrievalQuery: { text: query } }
    const retrievalConfiguration = { [`${this.#config.search}SearchConfiguration`]: search }
    const reply = await this.#call('recall', (client, stop) =>
      client.retrieve({ ...asked, retrievalConfiguration }, stop),
    )
    return (reply.retrievalResults ?? []).flatMap(recordsOf)
  }

  /** Ingest the texts as documents; a repetition replaces them by the same. */
  async createEvent(event: MemoryEvent): Promise<void> {
    const { path } = resolve(this.#template, event.identity)
    const attributes = { ...event.metadata, namespace: path, created_at: event.at.toISOString() }
    const documents = event.utterances.flatMap(([role, text], number) =>
      role === 'USER' ? [documentOf(`${path}${event.token}-${number}`, text, attributes)] : [],
    )
    for (const some of partsOf(documents)) {
      const place = await this.#place()
      const reply = await this.#call('record', (client, stop) =>
        client.ingestKnowledgeBaseDocuments({ ...place, documents: some }, stop),
      )
      for (const { status } of reply.documentDetails ?? []) {
        if (!status || !REFUSED.includes(status)) continue
        throw new MemoryUnavailable(`Knowledge Bases: a document is ${status}`)
      }
      await this.#look()
      if (this.#unknown.length === 0) {
        this.#unknown = some.map(({ content }) => content!.custom!.customDocumentIdentifier!.id!)
      }
    }
  }

  /** Log what became of documents that were accepted earlier. It does not throw. */
  async #look(): Promise<void> {
    const [ids, now] = [this.#unknown, performance.now()]
    if (ids.length === 0 || now < this.#nextLook) return
    this.#unknown = []
    this.#nextLook = now + LOOK_PAUSE
    const documentIdentifiers = ids.map((id) => ({
      dataSourceType: 'CUSTOM' as const,
      custom: { id },
    }))
    try {
      const place = await this.#place()
      const { documentDetails = [] } = await this.#call('record', (client, stop) =>
        client.getKnowledgeBaseDocuments({ ...place, documentIdentifiers }, stop),
      )
      const details = documentDetails.map(({ identifier, status }) => ({
        id: identifier?.custom?.id ?? '',
        status: status!,
      }))
      const refused = details.filter(({ status }) => REFUSED.includes(status)).length
      if (refused > 0) {
        const what = 'documents are not indexed: `check --connect` says why'
        log('ERROR', `${this.contact}: ${refused} of ${details.length} ${what}`)
      }
      const pending = details.filter(({ status }) => PENDING.includes(status)).map(({ id }) => id)
      if (this.#unknown.length === 0) this.#unknown = pending
    } catch (error) {
      if (!(error instanceof MemoryUnavailable)) throw error
      log('WARNING', `it is not known whether texts are indexed: ${error.message}`)
    }
  }

  /** Return the knowledge base, the data source if the file names one, and how it is searched. */
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
    const place = await this.#place()
    const { dataSource: source = {} } = await this.#call('control', (client, stop) =>
      client.getDataSource(place, stop),
    )
    return { base, source, search }
  }

  async sessions(): Promise<string[]> {
    return []
  }

  async *events(): AsyncGenerator<string[]> {}

  async deleteEvent(): Promise<void> {}

  /** Yield the ids, statuses and reasons of all documents of the data source, page by page. */
  async *documents(): AsyncGenerator<DocumentDetail[]> {
    const place = await this.#place()
    let nextToken: string | undefined
    do {
      const asked = { ...place, maxResults: PAGE, nextToken }
      const reply = await withRetries(() =>
        this.#call('record', (client, stop) => client.listKnowledgeBaseDocuments(asked, stop)),
      )
      yield (reply.documentDetails ?? []).flatMap(({ identifier, status, statusReason }) => {
        const id = identifier?.custom?.id
        return id && status && !GONE.includes(status) ? [{ id, status, reason: statusReason }] : []
      })
      nextToken = reply.nextToken
    } while (nextToken)
  }

  async *records(namespace: Namespace): AsyncGenerator<string[]> {
    for await (const page of this.documents()) {
      yield page.map(({ id }) => id).filter((id) => namespace.holds(pathOf(id)))
    }
  }

  async paths(actor: string): Promise<string[]> {
    const found = new Set<string>()
    for await (const page of this.documents()) {
      for (const { id } of page) found.add(pathOf(id))
    }
    return [...found].filter((path) => path.split('/').includes(actor))
  }

  async deleteRecords(ids: readonly string[]): Promise<string[]> {
    const deleted: string[] = []
    for (const some of partsOf(ids)) {
      const place = await this.#place()
      const documentIdentifiers = some.map((id) => ({
        dataSourceType: 'CUSTOM' as const,
        custom: { id },
      }))
      const { documentDetails = [] } = await withRetries(() =>
        this.#call('record', (client, stop) =>
          client.deleteKnowledgeBaseDocuments({ ...place, documentIdentifiers }, stop),
        ),
      )
      for (const { identifier, status } of documentDetails) {
        if (status && GONE.includes(status)) deleted.push(identifier?.custom?.id ?? '')
      }
    }
    return deleted
  }

  async #baseId(): Promise<string> {
    return await secretOf(this.#secrets, backend.secretRefs(this.#config)[0]!)
  }

  async #place(): Promise<Place> {
    const [, source] = backend.secretRefs(this.#config)
    if (!source) {
      const what = 'its file names no data source: add data_source_id_secret'
      throw new MemoryUnavailable(what, { isTransient: false })
    }
    const dataSourceId = await secretOf(this.#secrets, source)
    return { knowledgeBaseId: await this.#baseId(), dataSourceId }
  }

  async #client<K extends Call>(call: K): Promise<Client[K]> {
    const { region } = this.#config
    const made = this.#clients.get(`bedrock ${call === 'recall'} ${region}`, async () => {
      if (call === 'recall') {
        const aws = await import('@aws-sdk/client-bedrock-agent-runtime')
        // Its own handler speaks HTTP/2, of which other endpoints than those of AWS know nothing.
        const { NodeHttpHandler } = await import('@smithy/node-http-handler')
        const { requestHandler, ...more } = configOf(region)
        const handler = new NodeHttpHandler(requestHandler)
        return new aws.BedrockAgentRuntime({ ...more, requestHandler: handler })
      }
      const aws = await import('@aws-sdk/client-bedrock-agent')
      return new aws.BedrockAgent(configOf(region))
    })
    return (await made) as Client[K]
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

function partsOf<T>(items: readonly T[]): T[][] {
  const count = Math.ceil(items.length / DOCUMENTS)
  return Array.from({ length: count }, (_, at) => items.slice(at * DOCUMENTS, (at + 1) * DOCUMENTS))
}

function documentOf(id: string, data: string, attributes: Metadata): KnowledgeBaseDocument {
  const inlineAttributes = Object.entries(attributes)
    // Others cannot be searched for.
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
  const { content, location, score = 1, metadata = {} } = result // unscored: as good as its place
  if (content?.text === undefined) return []
  const [namespace, createdAt] = [metadata.namespace, metadata.created_at].map((one) =>
    typeof one === 'string' ? one : '',
  )
  const id = location?.customDocumentLocation?.id ?? ''
  return [{ id, text: content.text, score, namespace: namespace!, createdAt: createdAt! }]
}
