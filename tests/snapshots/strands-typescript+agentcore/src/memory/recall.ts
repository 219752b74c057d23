// Recall: searches the namespaces that a turn may read, within a time limit.

import { AsyncLocalStorage } from 'node:async_hooks'

import { NamespaceConfig } from '../collections/memory_backend.ts'
import { isBlank } from '../contract.ts'
import { log } from '../log.ts'
import { bounded, describeFailure, type MemoryCollection, type MemoryRecord } from './base.ts'
import { MemoryUnavailable } from './base.ts'
import { areWhole, ofStrategies, resolve, type Who, writtenTemplates } from './namespaces.ts'

export const MAX_QUERY_CHARS = 10_000 // UTF-16 units, as the service counts
const MAX_RESULTS = 100 // of one call
const OVERFETCH = 4 // some records are not relevant enough
export const DEFAULT = NamespaceConfig.parse({})
const MAX_BLOCK_CHARS = 20_000
const ESCAPES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }

/** A record, and the collection that it is from. */
export interface Hit extends MemoryRecord {
  readonly collection: string
}

/** Return the search limits of each namespace template. Throws MemoryUnavailable. */
async function namespacesOf(
  collection: MemoryCollection,
): Promise<Record<string, NamespaceConfig>> {
  const declared = collection.namespaces
  if (declared && areWhole(Object.keys(declared))) return declared
  const { strategies = [] } = await collection.memory.describe()
  const isOwn = collection.lifetime === 'user' // actors share the others
  const kept = declared
    ? Object.entries(declared).flatMap(([template, config]) =>
        ofStrategies(template, strategies).map((path) => [path, config] as const),
      )
    : writtenTemplates(strategies)
        .filter((one) => !isOwn || one.includes('{actorId}'))
        .map((one) => [one, DEFAULT] as const)
  if (declared && kept.length === 0) {
    throw new MemoryUnavailable('no strategy of the memory writes to them')
  }
  const wanted = Object.fromEntries(kept)
  if (kept.length > 0) collection.namespaces = wanted // else ask again next turn
  return wanted
}

/** A model call that memories may be shown to. */
export interface InjectionContext {
  readonly who: Who
  /** Of the turn. */
  readonly prompt: string
  /** The text of the model's last step in this turn; '' in its first call. */
  readonly said: string
  /** Of the call in its turn, from 1. */
  readonly number: number
  /** What the model gets, in the form of the framework; to read only. */
  readonly messages: readonly unknown[]
}

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

/** Long-term memory in one turn: what it recalls, and what it adds when it commits. */
export class MemoryTurn {
  readonly identity: Who
  readonly collections: readonly MemoryCollection[]
  readonly began = new Date()
  readonly added: string[] = []
  isOver = false
  /** What the last model call was shown. */
  shown: Shown = { hits: [], text: '', notice: '' }
  /** What was found, by query. */
  readonly searches = new Map<string, Promise<readonly Hit[]>>()
  /** The model calls so far. */
  calls = 0
  readonly #recalled = new Set<string>()
  readonly #isWritable: boolean
  readonly #seconds: number
  readonly #notes: Map<string, unknown>

  /** `collections` are read; `isWritable` tells whether there is one to write to. */
  constructor(
    identity: Who,
    collections: readonly MemoryCollection[],
    options: { isWritable: boolean; seconds: number },
    notes: Map<string, unknown>,
  ) {
    this.identity = identity
    this.#notes = notes
    this.collections = collections
    this.#isWritable = options.isWritable
    this.#seconds = options.seconds
  }

  /** Note what a model call is shown. */
  show(shown: Shown): Shown {
    for (const { text } of shown.hits) this.#recalled.add(text)
    this.#notes.set('recalled', [...this.#recalled])
    return (this.shown = shown)
  }

  /** Record a text if the turn commits. Throws RangeError if it is blank, else Error. */
  add(text: string): void {
    if (isBlank(text)) throw new RangeError('A blank text cannot be remembered.')
    if (!this.#isWritable)
      throw new Error('This agent has no long-term memory that it may write to.')
    if (this.isOver) throw new Error('The turn is over.')
    this.added.push(text)
  }

  /**
   * Search for the end of a query; return hits, best first.
   *
   * It does not throw: a namespace that fails or is late is left out, with a line in the log.
   */
  async search(query: string, collections = this.collections): Promise<Hit[]> {
    const end = query.slice(-MAX_QUERY_CHARS).replace(/^[\udc00-\udfff]/, '')
    if (isBlank(end)) return []
    const stop = new AbortController()
    const timer = setTimeout(() => stop.abort(), this.#seconds * 1000)
    try {
      const found = collections.map((collection) =>
        this.#searchAll(collection, end.toWellFormed(), stop.signal),
      )
      return this.best((await Promise.all(found)).flat())
    } finally {
      clearTimeout(timer)
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

  async #searchAll(one: MemoryCollection, query: string, stop: AbortSignal): Promise<Hit[]> {
    const inTime = async <T>(where: string, work: () => Promise<T[]>): Promise<T[]> => {
      try {
        return await bounded(stop, `no answer within ${this.#seconds} s`, work)
      } catch (error) {
        log('WARNING', `nothing recalled from ${one.id}, ${where}: ${describeFailure(error)}`)
        return []
      }
    }
    const all = await inTime('its namespaces', async () => Object.entries(await namespacesOf(one)))
    const found = all.map(([template, wanted]) =>
      inTime(template, async () => retrieve(one, template, wanted, this.identity, query)),
    )
    return (await Promise.all(found)).flat()
  }
}

/** The MemoryTurn of the running code, such as a tool. */
export const current = new AsyncLocalStorage<MemoryTurn>()

/** Search one namespace of a memory. Throws MemoryUnavailable. */
async function retrieve(
  { id, memory }: MemoryCollection,
  template: string,
  wanted: NamespaceConfig,
  who: Who,
  query: string,
): Promise<Hit[]> {
  const namespace = resolve(template, who)
  const count = Math.min(MAX_RESULTS, OVERFETCH * wanted.top_k)
  const records = await memory.retrieve(namespace, query, count, who)
  const fitting = records.filter(({ score, text, namespace: where }) => {
    return score >= wanted.relevance_score && !isBlank(text) && namespace.holds(where)
  })
  const sorted = fitting.toSorted((one, other) => other.score - one.score)
  return sorted.slice(0, wanted.top_k).map((record) => ({ ...record, collection: id }))
}

/** Return what was found as text for a model, or ''; what does not fit in is left out. */
export function memoryBlock(hits: readonly Hit[]): string {
  const escape = (text: string) => text.replace(/[&<>"]/g, (one) => ESCAPES[one]!)
  const lines = ['<memory>']
  let length = '<memory>\n</memory>'.length
  for (const { collection, text } of hits) {
    const line = `<entry source="${escape(collection)}">${escape(text)}</entry>`
    if (length + line.length + 1 > MAX_BLOCK_CHARS) continue
    lines.push(line)
    length += line.length + 1
  }
  return lines.length > 1 ? [...lines, '</memory>'].join('\n') : ''
}
