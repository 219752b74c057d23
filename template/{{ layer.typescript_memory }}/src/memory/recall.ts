// What a turn recalls: the best records of all namespaces that are read, soon or not at all.

import { describe, isBlank, log } from '../contract.ts'
import { Unavailable } from './backends.ts'
import type { Memory } from './memories.ts'
import { type Place, resolve, type Who } from './namespaces.ts'

const LONGEST_QUERY = 10_000 // UTF-16 units, as the service counts
const MOST = 100 // records of one call
const SPARE = 4 // times as many as are wanted: some are not relevant enough
const DEFAULT = { top_k: 10, relevance_score: 0.2 }
const LONGEST_BLOCK = 20_000 // characters
const ESCAPES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }

/** What is remembered, how well it fits (0 to 1), and where it was found. */
export interface Found {
  readonly text: string
  readonly score: number
  readonly namespace: string
  readonly collection: string
  readonly createdAt: string
  readonly id: string
}

/** What is wanted of one namespace. */
export type Wanted = { readonly top_k: number; readonly relevance_score: number }
/** What one place has for a query; `stop` is aborted when nobody waits any more. @public */
export type Retrieve = (
  reader: Reader,
  place: Place,
  wanted: Wanted,
  query: string,
  stop: AbortSignal,
) => Promise<Found[]>
type Limit = { late: Promise<never>; stop: AbortSignal }

/** A collection that is read. `declared` is null when the resource says which namespaces. */
export interface Reader {
  readonly collectionId: string
  readonly lifetime: string
  readonly memory: Memory
  declared: Record<string, Wanted> | null
}

/** What is wanted of each namespace, by its template. Throws Unavailable. */
export async function namespacesOf(reader: Reader): Promise<Record<string, Wanted>> {
  if (reader.declared) return reader.declared
  const resource = await reader.memory.describe()
  const found = (resource?.strategies ?? []).flatMap(({ id, namespaces }) =>
    namespaces.map((one) => one.replaceAll('{memoryStrategyId}', id)),
  )
  // The keys of the service are in lower case only.
  const templates = found.map((one) => one.replaceAll('{projectid}', '{projectId}'))
  const isOwn = reader.lifetime === 'user' // then the others would be shared by people
  const kept = templates.filter((one) => !isOwn || one.includes('{actorId}'))
  const wanted = Object.fromEntries(kept.map((one) => [one, DEFAULT]))
  if (kept.length > 0) reader.declared = wanted // else it is asked again
  return wanted
}

/** What one turn recalls. A memory that fails or is late is left out, with a line in the log. */
export class Recall {
  readonly who: Who
  readonly readers: readonly Reader[]
  readonly #seconds: number
  #first: Promise<Found[]> | null = null

  constructor(who: Who, readers: readonly Reader[], seconds: number) {
    this.who = who
    this.readers = readers
    this.#seconds = seconds
  }

  /** The recall of the turn: however many of its steps ask, it searches for the first only. */
  once(query: string): Promise<Found[]> {
    return (this.#first ??= this.search(query))
  }

  /** What fits the end of a query, best first. Never throws, and ends in time. */
  async search(query: string, readers = this.readers, ask: Retrieve = retrieve): Promise<Found[]> {
    const end = query.slice(-LONGEST_QUERY).replace(/^[\udc00-\udfff]/, '')
    if (isBlank(end)) return []
    const [own, late] = [new AbortController(), Promise.withResolvers<never>()]
    late.promise.catch(() => {})
    const timer = setTimeout(() => {
      late.reject(new Unavailable(`no answer within ${this.#seconds} s`))
      own.abort()
    }, this.#seconds * 1000)
    try {
      const limit = { late: late.promise, stop: own.signal }
      const asked = readers.map((one) => this.#read(one, end.toWellFormed(), limit, ask))
      const read = await Promise.all(asked)
      const best = new Map<string, Found>()
      for (const found of read.flat().toSorted((one, other) => other.score - one.score)) {
        if (!best.has(found.text)) best.set(found.text, found)
      }
      return [...best.values()]
    } finally {
      clearTimeout(timer)
      own.abort()
    }
  }

  async #read(reader: Reader, query: string, limit: Limit, ask: Retrieve): Promise<Found[]> {
    const namespaces = await inTime(limit, `${reader.collectionId}, its namespaces`, async () =>
      Object.entries(await namespacesOf(reader)),
    )
    const found = namespaces.map(([template, wanted]) =>
      inTime(limit, `${reader.collectionId}, ${template}`, async () =>
        ask(reader, resolve(template, this.who), wanted, query, limit.stop),
      ),
    )
    return (await Promise.all(found)).flat()
  }
}

/** What one place has for a query, as its namespace wants it. Throws Unavailable. @public */
export const retrieve: Retrieve = async (reader, place, wanted, query, stop) => {
  const count = Math.min(MOST, SPARE * wanted.top_k)
  const records = await reader.memory.retrieve(place, query, count, stop)
  const fitting = records.filter(({ score, text, namespace }) => {
    return score >= wanted.relevance_score && !isBlank(text) && place.holds(namespace)
  })
  const best = fitting.toSorted((one, other) => other.score - one.score).slice(0, wanted.top_k)
  return best.map((record) => ({ ...record, collection: reader.collectionId }))
}

/** What was found as text for a model, or ''; what does not fit in its length is left out. */
export function block(found: readonly Found[]): string {
  const escape = (text: string) => text.replace(/[&<>"]/g, (one) => ESCAPES[one]!)
  const lines = ['<memory>']
  let length = '<memory>\n</memory>'.length
  for (const { collection, text } of found) {
    const line = `<entry source="${escape(collection)}">${escape(text)}</entry>`
    if (length + line.length + 1 > LONGEST_BLOCK) continue
    lines.push(line)
    length += line.length + 1
  }
  return lines.length > 1 ? [...lines, '</memory>'].join('\n') : ''
}

async function inTime<T>(limit: Limit, where: string, work: () => Promise<T[]>): Promise<T[]> {
  try {
    return await Promise.race([work(), limit.late])
  } catch (error) {
    const why = error instanceof Unavailable ? error.message : describe(error)
    log('WARNING', `nothing recalled from ${where}: ${why}`)
    return []
  }
}
