// Recall memories: search the namespaces of a turn, within a time limit.

import { AsyncLocalStorage } from 'node:async_hooks'

import {
  filterProblem,
  MAX_FILTERS,
  metadataProblem,
  type NamespaceConfig,
} from '../collections/memory_backend.ts'
import { isBlank, type Turn } from '../contract.ts'
import { startTimer } from '../deadline.ts'
import { log } from '../log.ts'
import { bounded, describeFailure, type MemoryCollection } from './base.ts'
import { MemoryUnavailable, type Metadata, type Utterance } from './base.ts'
import type { AddOptions, Failures, FindOptions, Found, Hit } from './hits.ts'
import { resolve, type Who } from './namespaces.ts'
import { MemoryPolicy } from './policy.ts'

export const MAX_QUERY_CHARS = 10_000 // UTF-16 units, as in AgentCore
const MAX_RESULTS = 100 // records per call

/** The text added to a model call, and the hits and notice in it. */
export interface Injection {
  readonly hits: readonly Hit[]
  readonly text: string
  readonly notice: string
}

/** Return the lines that the echo model adds to its reply. */
export function linesOf({ hits, notice }: Injection): string[] {
  const lines = hits.map(({ text }) => ` I remember: "${text}"`)
  return notice ? [...lines, ` I am told: "${notice}"`] : lines
}

/** A store of the project's own policy. */
interface OwnStore {
  readonly name: string
  /** Whether code and tools can add text to the store. */
  readonly takesTexts: boolean
  /** Return at most `limit` hits; add an error to `failures`. */
  hits(query: string, limit: number | undefined, failures: Failures): Promise<Hit[]>
  /** Add text now. */
  send(text: string, metadata: Metadata): Promise<unknown>
}

/** The fields of a Turn that memory writes to. */
export type Notes = Pick<Turn, 'kept' | 'recalled'>

/** The long-term memory of one turn: its searches, and the texts to store when it commits. */
export class MemoryTurn {
  readonly identity: Who
  readonly collections: readonly MemoryCollection[]
  readonly policy: MemoryPolicy
  readonly startedAt = new Date()
  readonly added: Utterance[]
  /** The stores of the project's own policy. */
  readonly stores: OwnStore[] = []
  isOver = false
  /** The injection of the last model call. */
  injection: Injection = { hits: [], text: '', notice: '' }
  /** The search that all model calls share. */
  sharedSearch: Promise<readonly Hit[]> | null = null
  /** The number of model calls so far. */
  calls = 0
  readonly #recalled = new Set<string>()
  readonly #writers: readonly string[]
  readonly #seconds: number
  readonly #overfetch: number
  readonly #notes: Notes

  /** `collections` are searched; `writers` are the names of writable collections. */
  constructor(
    identity: Who,
    collections: readonly MemoryCollection[],
    options: {
      writers: readonly string[]
      seconds: number
      overfetch: number
      policy?: MemoryPolicy
    },
    notes: Notes,
  ) {
    this.identity = identity
    this.#notes = notes
    const { added = [] } = notes.kept as { added?: Utterance[] }
    this.added = added
    notes.kept.added = added // kept while an approval is pending
    this.collections = collections
    this.policy = options.policy ?? new MemoryPolicy()
    this.#writers = options.writers
    this.#seconds = options.seconds
    this.#overfetch = options.overfetch
  }

  /** Record the injection of a model call, and its texts as recalled by the turn. */
  recordInjection(injection: Injection): Injection {
    for (const { text } of injection.hits) this.#recalled.add(text)
    this.#notes.recalled = [...this.#recalled]
    this.injection = injection
    return injection
  }

  /**
   * Queue text to store when the turn commits.
   *
   * Throws RangeError for invalid values, and Error if no memory is writable or the turn is over.
   */
  add(text: string, { stores, metadata = {} }: AddOptions = {}): void {
    if (isBlank(text)) throw new RangeError('The text is blank: add a text with content.')
    const writable = this.stores.filter(({ takesTexts }) => takesTexts)
    const targets = [...this.#writers, ...writable.map(({ name }) => name)]
    if (targets.length === 0) throw new Error('This agent has no writable long-term memory.')
    if (this.isOver) throw new Error('The turn is over: add texts before it ends.')
    const problem = metadataProblem(metadata)
    if (problem) throw new RangeError(`Metadata: ${problem}.`)
    const names = stores && checkStoreNames(stores, targets)
    this.added.push(['USER', text, metadata, names, true])
  }

  /**
   * Search stores by name (default: all), for at most `maxSearchResults` hits per store.
   *
   * Throws RangeError for an unknown store and for invalid values. A search with metadata skips the
   * stores of the project's own policy: they cannot filter.
   */
  async find(query: string, options: FindOptions = {}): Promise<Found> {
    const { stores, maxSearchResults: limit = Infinity, metadata = {} } = options
    if (!(limit >= 1)) throw new RangeError('maxSearchResults must be at least 1.')
    const problem = filterProblem(metadata)
    if (problem) throw new RangeError(`Metadata: ${problem}.`)
    const storesOfOwner = Object.keys(metadata).length > 0 ? [] : this.stores
    const ids = this.collections.map(({ id }) => id)
    const available = [...ids, ...storesOfOwner.map(({ name }) => name)]
    const names = stores ? checkStoreNames(stores, available) : available
    const selected = this.collections.filter(({ id }) => names.includes(id))
    const failures: Failures = {}
    const results = await Promise.all([
      this.search(query, selected, metadata, failures),
      ...storesOfOwner.map((store) =>
        names.includes(store.name) ? store.hits(query, options.maxSearchResults, failures) : [],
      ),
    ])
    const counts = new Map<string, number>()
    const hits = this.best(results.flat()).filter(({ collection }) => {
      const count = (counts.get(collection) ?? 0) + 1
      counts.set(collection, count)
      return count <= limit
    })
    return Object.assign(hits, { failures })
  }

  /**
   * Search with the last MAX_QUERY_CHARS characters of a query, within the time limit.
   *
   * Return hits, best first. Never throws: a failed or late memory is skipped, logged, and added to
   * `failures`.
   */
  async search(
    query: string,
    collections = this.collections,
    metadata: Metadata = {},
    failures: Failures = {},
  ): Promise<Hit[]> {
    const text = query.slice(-MAX_QUERY_CHARS).replace(/^[\udc00-\udfff]/, '')
    if (isBlank(text)) return []
    const stop = new AbortController()
    const stopTimer = startTimer(this.#seconds, () => stop.abort())
    try {
      const searches = collections.map((collection) =>
        this.#searchAll(collection, text.toWellFormed(), stop.signal, metadata, failures),
      )
      return this.best((await Promise.all(searches)).flat())
    } finally {
      stopTimer()
    }
  }

  /** Return the hits by descending score, without duplicate texts. */
  best(hits: readonly Hit[]): Hit[] {
    const unique = new Map<string, Hit>()
    for (const hit of hits.toSorted((a, b) => b.score - a.score)) {
      if (!unique.has(hit.text)) unique.set(hit.text, hit)
    }
    return [...unique.values()]
  }

  async #searchAll(
    collection: MemoryCollection,
    query: string,
    stop: AbortSignal,
    metadata: Metadata,
    failures: Failures,
  ): Promise<Hit[]> {
    const attempt = async <T>(task: string, work: () => Promise<T[]>): Promise<T[]> => {
      try {
        return await bounded(stop, `no answer within ${this.#seconds} s`, work)
      } catch (error) {
        const reason = describeFailure(error)
        log('WARNING', `could not ${task} of ${collection.id}: ${reason}`)
        failures[collection.id] = `could not ${task}: ${reason}`
        return []
      }
    }
    const namespaces = await attempt('list the namespaces', async () =>
      Object.entries(await collection.memory.namespaces(collection)),
    )
    const searches = namespaces.map(([template, config]) =>
      attempt(`search namespace ${template}`, async () => {
        return await this.#retrieve(collection, template, config, query, metadata)
      }),
    )
    return (await Promise.all(searches)).flat()
  }

  /** Search one namespace of a memory. Throws MemoryUnavailable. */
  async #retrieve(
    { id, memory }: MemoryCollection,
    template: string,
    config: NamespaceConfig,
    query: string,
    metadata: Metadata,
  ): Promise<Hit[]> {
    const namespace = resolve(template, this.identity)
    const filters: Metadata = { ...metadata, ...config.metadata }
    // The collection file requires a different value for this key, so nothing can match.
    if (Object.entries(metadata).some(([key, value]) => filters[key] !== value)) return []
    if (Object.keys(filters).length > MAX_FILTERS) {
      const problem = `with the metadata of its file, the search has over ${MAX_FILTERS} keys`
      throw new MemoryUnavailable(problem)
    }
    const count = Math.min(MAX_RESULTS, this.#overfetch * config.top_k)
    const records = await memory.retrieve(namespace, query, count, this.identity, filters)
    const relevant = records.filter(({ score, text, namespace: where }) => {
      return score >= config.relevance_score && !isBlank(text) && namespace.holds(where)
    })
    const sorted = relevant.toSorted((a, b) => b.score - a.score)
    return sorted.slice(0, config.top_k).map((record) => ({ ...record, collection: id }))
  }
}

/** The MemoryTurn of the running turn, for its tools, too. */
export const turnStorage = new AsyncLocalStorage<MemoryTurn>()

/** Return `names`. Throws RangeError if it is empty or has an unknown store. */
function checkStoreNames(
  names: readonly string[],
  available: readonly string[],
): readonly string[] {
  if (names.length === 0) {
    throw new RangeError('The list of stores is empty: name a store, or omit stores to use all.')
  }
  for (const name of names) {
    if (available.includes(name)) continue
    const list = available.join(', ') || 'none'
    throw new RangeError(`Store ${name} does not exist; available stores: ${list}.`)
  }
  return names
}
