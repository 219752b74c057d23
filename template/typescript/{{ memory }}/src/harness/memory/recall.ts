// Recall: searches the namespaces that a turn may read, within a time limit.

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

export const MAX_QUERY_CHARS = 10_000 // UTF-16 units, as the service counts
const MAX_RESULTS = 100 // of one call

/** What a model call is shown, and what its text was made of. */
export interface Shown {
  readonly hits: readonly Hit[]
  readonly text: string
  readonly notice: string
}

/** Return what the offline model says of what it is shown. */
export function linesOf({ hits, notice }: Shown): string[] {
  const lines = hits.map(({ text }) => ` I remember: "${text}"`)
  return notice ? [...lines, ` I am told: "${notice}"`] : lines
}

/** A store of the owner, which returns at most so many hits. */
interface OwnStore {
  readonly name: string
  /** Whether texts can be added. */
  readonly takesTexts: boolean
  hits(query: string, most: number | undefined, failures: Failures): Promise<Hit[]>
  /** Add a text now. */
  send(text: string, metadata: Metadata): Promise<unknown>
}

/** What a turn notes of its memories. */
export type Notes = Pick<Turn, 'kept' | 'recalled'>

/** Long-term memory in one turn: what it recalls, and what it adds when it commits. */
export class MemoryTurn {
  readonly identity: Who
  readonly collections: readonly MemoryCollection[]
  readonly policy: MemoryPolicy
  readonly began = new Date()
  readonly added: Utterance[]
  /** Of the owner. */
  readonly stores: OwnStore[] = []
  isOver = false
  /** What the last model call was shown. */
  shown: Shown = { hits: [], text: '', notice: '' }
  /** The results of the search that all model calls of the turn share. */
  first: Promise<readonly Hit[]> | null = null
  /** The model calls so far. */
  calls = 0
  readonly #recalled = new Set<string>()
  readonly #writers: readonly string[]
  readonly #seconds: number
  readonly #overfetch: number
  readonly #notes: Notes

  /** `collections` are read; `writers` are the names of those that are written to. */
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
    notes.kept.added = added // for a turn that waits
    this.collections = collections
    this.policy = options.policy ?? new MemoryPolicy()
    this.#writers = options.writers
    this.#seconds = options.seconds
    this.#overfetch = options.overfetch
  }

  /** Note what a model call is shown. */
  show(shown: Shown): Shown {
    for (const { text } of shown.hits) this.#recalled.add(text)
    this.#notes.recalled = [...this.#recalled]
    return (this.shown = shown)
  }

  /** Record a text if the turn commits. Throws RangeError for what it does not take, else Error. */
  add(text: string, { stores, metadata = {} }: AddOptions = {}): void {
    if (isBlank(text)) throw new RangeError('A blank text cannot be remembered.')
    const own = this.stores.filter(({ takesTexts }) => takesTexts)
    const targets = [...this.#writers, ...own.map(({ name }) => name)]
    if (targets.length === 0)
      throw new Error('This agent has no long-term memory that it may write to.')
    if (this.isOver) throw new Error('The turn is over.')
    const problem = metadataProblem(metadata)
    if (problem) throw new RangeError(`Metadata: ${problem}.`)
    this.added.push(['USER', text, metadata, stores && known(stores, targets), true])
  }

  /**
   * Search stores by name, or all, for at most so many hits of each.
   *
   * Throws RangeError for an unknown store and what a search does not allow. A search by metadata
   * knows no stores of the owner: they have no filter.
   */
  async find(query: string, options: FindOptions = {}): Promise<Found> {
    const { stores, maxSearchResults: most = Infinity, metadata = {} } = options
    if (!(most >= 1)) throw new RangeError('maxSearchResults must be at least 1.')
    const problem = filterProblem(metadata)
    if (problem) throw new RangeError(`Metadata: ${problem}.`)
    const own = Object.keys(metadata).length > 0 ? [] : this.stores
    const all = [...this.collections.map(({ id }) => id), ...own.map(({ name }) => name)]
    const names = stores ? known(stores, all) : all
    const read = this.collections.filter(({ id }) => names.includes(id))
    const failures: Failures = {}
    const found = await Promise.all([
      this.search(query, read, metadata, failures),
      ...own.map((store) =>
        names.includes(store.name) ? store.hits(query, options.maxSearchResults, failures) : [],
      ),
    ])
    const counts = new Map<string, number>()
    const hits = this.best(found.flat()).filter(({ collection }) => {
      const count = (counts.get(collection) ?? 0) + 1
      counts.set(collection, count)
      return count <= most
    })
    return Object.assign(hits, { failures })
  }

  /**
   * Search for the end of a query; return hits, best first.
   *
   * It does not throw: a namespace that fails or is late is left out, with a line in the log, and
   * added to `failures`.
   */
  async search(
    query: string,
    collections = this.collections,
    metadata: Metadata = {},
    failures: Failures = {},
  ): Promise<Hit[]> {
    const end = query.slice(-MAX_QUERY_CHARS).replace(/^[\udc00-\udfff]/, '')
    if (isBlank(end)) return []
    const stop = new AbortController()
    const stopTimer = startTimer(this.#seconds, () => stop.abort())
    try {
      const found = collections.map((collection) =>
        this.#searchAll(collection, end.toWellFormed(), stop.signal, metadata, failures),
      )
      return this.best((await Promise.all(found)).flat())
    } finally {
      stopTimer()
    }
  }

  /** Sort what was found, best first, with each text once. */
  best(hits: readonly Hit[]): Hit[] {
    const unique = new Map<string, Hit>()
    for (const hit of hits.toSorted((one, other) => other.score - one.score)) {
      if (!unique.has(hit.text)) unique.set(hit.text, hit)
    }
    return [...unique.values()]
  }

  async #searchAll(
    one: MemoryCollection,
    query: string,
    stop: AbortSignal,
    metadata: Metadata,
    failures: Failures,
  ): Promise<Hit[]> {
    const inTime = async <T>(where: string, work: () => Promise<T[]>): Promise<T[]> => {
      try {
        return await bounded(stop, `no answer within ${this.#seconds} s`, work)
      } catch (error) {
        const why = describeFailure(error)
        log('WARNING', `nothing recalled from ${one.id}, ${where}: ${why}`)
        failures[one.id] = `${where}: ${why}`
        return []
      }
    }
    const all = await inTime('its namespaces', async () =>
      Object.entries(await one.memory.namespaces(one)),
    )
    const found = all.map(([template, wanted]) =>
      inTime(template, async () => {
        return await this.#retrieve(one, template, wanted, query, metadata)
      }),
    )
    return (await Promise.all(found)).flat()
  }

  /** Search one namespace of a memory. Throws MemoryUnavailable. */
  async #retrieve(
    { id, memory }: MemoryCollection,
    template: string,
    wanted: NamespaceConfig,
    query: string,
    metadata: Metadata,
  ): Promise<Hit[]> {
    const namespace = resolve(template, this.identity)
    const filters: Metadata = { ...metadata, ...wanted.metadata }
    // Where the file wants another value, there is nothing to find.
    if (Object.entries(metadata).some(([key, value]) => filters[key] !== value)) return []
    if (Object.keys(filters).length > MAX_FILTERS) {
      throw new MemoryUnavailable(`with the metadata of its file, more than ${MAX_FILTERS} keys`)
    }
    const count = Math.min(MAX_RESULTS, this.#overfetch * wanted.top_k)
    const records = await memory.retrieve(namespace, query, count, this.identity, filters)
    const fitting = records.filter(({ score, text, namespace: where }) => {
      return score >= wanted.relevance_score && !isBlank(text) && namespace.holds(where)
    })
    const sorted = fitting.toSorted((one, other) => other.score - one.score)
    return sorted.slice(0, wanted.top_k).map((record) => ({ ...record, collection: id }))
  }
}

/** The MemoryTurn of the running code, such as a tool. */
export const current = new AsyncLocalStorage<MemoryTurn>()

function known(stores: readonly string[], all: readonly string[]): readonly string[] {
  if (stores.length === 0) {
    throw new RangeError('No store is named: name one, or leave stores out for all.')
  }
  for (const name of stores) {
    if (all.includes(name)) continue
    throw new RangeError(`There is no store ${name} here, only ${all.join(', ') || 'none'}.`)
  }
  return stores
}
