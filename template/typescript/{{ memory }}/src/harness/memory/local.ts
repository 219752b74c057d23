// A long-term memory in a local file, for trials: finds user messages by the query's words.

import { randomUUID } from 'node:crypto'
import { existsSync, readdirSync } from 'node:fs'
import { appendFile, mkdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { truncate, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'

import { z } from 'zod'

import { log } from '../log.ts'
import { type Memory, type MemoryEvent, MemoryUnavailable } from './base.ts'
import type { Entry, MemoryCollection, MemoryRecord, Metadata, Namespaces } from './base.ts'
import { defaultTemplate, eventSession, LOCAL, type Namespace, resolve } from './namespaces.ts'
import { STRATEGY, type Who } from './namespaces.ts'

const FOLDER = '.memory'
const MAX_ROWS = 10_000 // a search reads only the last rows
const STOP =
  'a an and are be did do does for how i in is it my of on or the to was what who you your'

const text = z.string()
const EventRow = z.strictObject({
  event: text,
  token: text,
  actor: text,
  session: text,
  at: text,
  items: z.unknown(),
})
const RecordRow = z.strictObject({
  record: text,
  namespace: text,
  text,
  at: text,
  metadata: z.record(text, text).optional(),
})
type Rows = {
  events: z.infer<typeof EventRow>[]
  records: z.infer<typeof RecordRow>[]
  /** Whether the last line has no line end. */
  isTorn: boolean
}

/** A Memory in a file: a row per event, and per user message and namespace. */
export class LocalMemory implements Memory {
  readonly contact: string
  readonly afterErasure = ''
  readonly #templates: readonly string[]
  readonly #path: string
  #last: Promise<unknown> = Promise.resolve()
  #hasWarned = false

  /** Open the memory of a collection; `contact` is the path followed by `note`. */
  constructor(collectionId: string, templates: readonly string[], note = '') {
    this.#templates = templates
    this.#path = join(FOLDER, `${collectionId}.jsonl`)
    this.contact = this.#path + note
  }

  /** Return the collections with a file. */
  static ids(): string[] {
    const names = existsSync(FOLDER) ? readdirSync(FOLDER).toSorted() : []
    return names.filter((name) => name.endsWith('.jsonl')).map((name) => basename(name, '.jsonl'))
  }

  /** Whether the file exists. */
  get exists(): boolean {
    return existsSync(this.#path)
  }

  /** Return at most `topK` records, best first, and only the newest of equal texts. */
  async retrieve(
    namespace: Namespace,
    query: string,
    topK: number,
    _identity: Who,
    metadata: Metadata,
  ): Promise<MemoryRecord[]> {
    const queryWords = wordsOf(query)
    const filters = Object.entries(metadata)
    const { records } = await this.#exclusive(() => this.#read(MAX_ROWS))
    const newest = new Map<string, MemoryRecord>()
    for (const row of records.toReversed()) {
      const { record: id, text, namespace: where, at: createdAt } = row
      if (!namespace.holds(where) || newest.has(text)) continue
      if (!filters.every(([key, value]) => row.metadata?.[key] === value)) continue
      const words = wordsOf(text)
      const count = [...queryWords].filter((word) => words.has(word)).length
      const score = count / (queryWords.size || 1)
      newest.set(text, { id, text, score, namespace: where, createdAt })
    }
    const matches = [...newest.values()].filter(({ score }) => score > 0)
    const isQuestion = ({ text }: MemoryRecord) => Number(text.endsWith('?'))
    matches.sort((a, b) => isQuestion(a) - isQuestion(b) || b.score - a.score)
    // An earlier question matches the words of the query, but must not outrank a fact.
    let lowest = 1
    const ranked = matches.map((hit) => ({ ...hit, score: (lowest = Math.min(lowest, hit.score)) }))
    return ranked.slice(0, topK)
  }

  /** Store the texts of an event, once per token. */
  async createEvent(memoryEvent: MemoryEvent): Promise<void> {
    const { identity, utterances, metadata, token, at: time } = memoryEvent
    const items = utterances.map(([role, text]) => [role, text])
    const more = Object.keys(metadata).length > 0 ? { metadata } : {}
    const event = randomUUID()
    const at = time.toISOString()
    const session = eventSession(identity.sessionId)
    const rows: object[] = [{ event, token, actor: identity.actor, session, at, items }]
    for (const [role, text] of utterances) {
      // Only user messages: the echo model repeats them, so its replies would fill the memory.
      if (role !== 'USER') continue
      for (const template of this.#templates) {
        const namespace = resolve(template, identity).path
        rows.push({ record: randomUUID(), namespace, text, at, ...more })
      }
    }
    await this.#exclusive(async () => {
      const { events, isTorn } = await this.#read()
      if (events.some((row) => row.token === token)) return
      await mkdir(FOLDER, { recursive: true })
      await writeFile(join(FOLDER, '.gitignore'), '*\n')
      const { size = 0 } = (await stat(this.#path).catch(() => null)) ?? {}
      try {
        await appendFile(this.#path, (isTorn ? '\n' : '') + linesOf(rows), { mode: 0o600 })
      } catch (error) {
        // A partial event would keep its token, and block the retry of the whole event.
        await truncate(this.#path, size).catch(() => {})
        throw error
      }
    })
  }

  async sessions(actor: string): Promise<string[]> {
    const { events } = await this.#exclusive(() => this.#read())
    const rows = events.filter((row) => row.actor === actor)
    return [...new Set(rows.map(({ session }) => session))]
  }

  async actors(): Promise<string[]> {
    const { events } = await this.#exclusive(() => this.#read())
    return [...new Set(events.map(({ actor }) => actor))]
  }

  async *events(actor: string, session: string): AsyncGenerator<string[]> {
    const { events } = await this.#exclusive(() => this.#read())
    const rows = events.filter((row) => row.actor === actor && row.session === session)
    yield rows.map(({ event }) => event)
  }

  async deleteEvent(_actor: string, _session: string, event: string): Promise<void> {
    await this.#delete('event', [event])
  }

  async *records(namespace: Namespace): AsyncGenerator<string[]> {
    for await (const page of this.entries(namespace)) yield page.map(([id]) => id)
  }

  async *entries(namespace: Namespace): AsyncGenerator<Entry[]> {
    const { records } = await this.#exclusive(() => this.#read())
    const inside = records.filter((row) => namespace.holds(row.namespace))
    yield inside.map(({ record, namespace: path }): Entry => [record, [path]])
  }

  async deleteRecords(ids: readonly string[]): Promise<string[]> {
    return await this.#delete('record', ids)
  }

  async namespaces({ namespaces }: MemoryCollection): Promise<Namespaces> {
    return namespaces ?? {}
  }

  async templates({ namespaces, lifetime }: MemoryCollection): Promise<string[]> {
    const declared = namespaces ? Object.keys(namespaces) : [defaultTemplate(lifetime)]
    return declared.map((template) => template.replaceAll(STRATEGY, LOCAL))
  }

  async writesTo(): Promise<string> {
    return ''
  }

  async warmUp(): Promise<void> {}

  async #read(limit = Infinity): Promise<Rows> {
    const all = await readFile(this.#path, 'utf8').catch((error) => {
      if (error.code !== 'ENOENT') throw error
      return ''
    })
    const rows: Rows = { events: [], records: [], isTorn: all !== '' && !all.endsWith('\n') }
    const lines = all.split('\n').filter(Boolean)
    for (const line of lines.slice(-Math.min(limit, lines.length))) {
      const value = parseLine(line)
      const event = EventRow.safeParse(value)
      const record = RecordRow.safeParse(value)
      if (event.success) rows.events.push(event.data)
      else if (record.success) rows.records.push(record.data)
      else if (!this.#hasWarned) {
        this.#hasWarned = true
        log('WARNING', `${this.#path} has unreadable lines, which are ignored`)
      }
    }
    return rows
  }

  async #delete(kind: 'event' | 'record', idList: readonly string[]): Promise<string[]> {
    return await this.#exclusive(async () => {
      const { events, records } = await this.#read()
      const ids = new Set(idList)
      const temporary = `${this.#path}.tmp`
      const idOf = (row: { event?: string; record?: string }) => row[kind] ?? ''
      const rows = [...events, ...records]
      const remaining = rows.filter((row) => !ids.has(idOf(row)))
      if (remaining.length < rows.length) {
        try {
          await writeFile(temporary, linesOf(remaining), { mode: 0o600 })
          await rename(temporary, this.#path)
        } catch (error) {
          await rm(temporary, { force: true })
          throw error
        }
      }
      return rows.map(idOf).filter((id) => ids.has(id))
    })
  }

  /** Do the work after all earlier work. Throws MemoryUnavailable. */
  async #exclusive<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#last.then(work)
    this.#last = result.catch(() => {})
    return await result.catch((error) => {
      throw error.code ? new MemoryUnavailable(`${this.#path}: ${error.code}`) : error
    })
  }
}

function parseLine(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    return null
  }
}

function linesOf(rows: readonly object[]): string {
  return rows.map((row) => `${JSON.stringify(row)}\n`).join('')
}

/** Return the significant words of text, without a plural s. */
function wordsOf(text: string): Set<string> {
  const stop = new Set(STOP.split(' '))
  const folded = text.toUpperCase().toLowerCase() // ß is ss
  const found = (folded.match(/[\p{L}\p{N}_]+/gu) ?? []).filter((word) => !stop.has(word))
  return new Set(found.map((word) => (/^.{2,}[^s]s$/u.test(word) ? word.slice(0, -1) : word)))
}
