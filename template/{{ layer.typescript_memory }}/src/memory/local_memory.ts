// A long-term memory in a file of this machine, for trying out: it stands in for AgentCore Memory.
//
// It remembers what people say, word for word, and finds it again by the words of a question.

import { randomUUID } from 'node:crypto'
import { appendFile, mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { log } from '../contract.ts'
import { Unavailable } from './backends.ts'
import { type EventRow, parse, type RecordRow, textOf, wordsOf } from './local_rows.ts'
import type { Event, Memory, MemoryRecord } from './memories.ts'
import { eventSession, type Place, resolve } from './namespaces.ts'

const MOST = 10_000 // rows that are searched, the last ones
type Rows = { events: EventRow[]; records: RecordRow[] }

/** The rows of one file: what was said, and each text of a person in each of its namespaces. */
export class LocalMemory implements Memory {
  readonly contact: string
  readonly #templates: readonly string[]
  readonly #folder: string
  readonly #path: string
  #last: Promise<unknown> = Promise.resolve()
  #isTold = false // that there are bad lines

  /** `more` is what is to be told of it where it is named. */
  constructor(collectionId: string, templates: readonly string[], more = '', folder = '.memory') {
    this.#templates = templates
    this.#folder = folder
    this.#path = join(folder, `${collectionId}.jsonl`)
    this.contact = this.#path + more
  }

  async retrieve(place: Place, query: string, topK: number): Promise<MemoryRecord[]> {
    const wanted = wordsOf(query)
    const { records } = await this.#alone(() => this.#read(MOST))
    const found = records.flatMap(({ record: id, text, namespace, at: createdAt }) => {
      if (!place.holds(namespace)) return []
      const own = wordsOf(text)
      const score = [...wanted].filter((word) => own.has(word)).length / (wanted.size || 1)
      return score > 0 ? [{ id, text, score, namespace, createdAt }] : []
    })
    return found.toSorted((one, other) => other.score - one.score).slice(0, topK)
  }

  async createEvent({ who, items, token, at: time }: Event): Promise<void> {
    const [event, at] = [randomUUID(), time.toISOString()]
    const session = eventSession(who.sessionId)
    const rows: object[] = [{ event, token, actor: who.actor, session, at, items }]
    for (const [role, text] of items) {
      // The replies of the offline model quote what was said, and would be remembered as well.
      if (role !== 'USER') continue
      for (const template of this.#templates) {
        rows.push({ record: randomUUID(), namespace: resolve(template, who).path, text, at })
      }
    }
    await this.#alone(async () => {
      const { events } = await this.#read()
      if (events.some((one) => one.token === token)) return
      await mkdir(this.#folder, { recursive: true })
      await writeFile(join(this.#folder, '.gitignore'), '*\n')
      await appendFile(this.#path, textOf(rows), { mode: 0o600 })
    })
  }

  async sessions(actor: string): Promise<string[]> {
    const { events } = await this.#alone(() => this.#read())
    const own = events.filter((row) => row.actor === actor)
    return [...new Set(own.map(({ session }) => session))]
  }

  async events(actor: string, session: string): Promise<string[]> {
    const { events } = await this.#alone(() => this.#read())
    const own = events.filter((row) => row.actor === actor && row.session === session)
    return own.map(({ event }) => event)
  }

  async deleteEvent(_actor: string, _session: string, event: string): Promise<void> {
    await this.#delete((row) => row.event === event)
  }

  async records(place: Place): Promise<[string[]]> {
    const { records } = await this.#alone(() => this.#read())
    return [records.filter((row) => place.holds(row.namespace)).map(({ record }) => record)]
  }

  async deleteRecords(ids: readonly string[]): Promise<number> {
    const all = new Set<unknown>(ids)
    return await this.#delete((row) => all.has(row.record))
  }

  async describe(): Promise<null> {
    return null
  }

  async #read(most = Infinity): Promise<Rows> {
    const rows: Rows = { events: [], records: [] }
    const all = await readFile(this.#path, 'utf8').catch((error) => {
      if (error.code !== 'ENOENT') throw error
      return ''
    })
    const lines = all.split('\n').filter(Boolean)
    for (const line of lines.slice(-Math.min(most, lines.length))) {
      const row = parse(line)
      if (row && 'record' in row) rows.records.push(row)
      else if (row) rows.events.push(row)
      else if (!this.#isTold) {
        this.#isTold = true
        log('WARNING', `${this.#path} has lines that cannot be read; they are left out`)
      }
    }
    return rows
  }

  async #delete(isGone: (row: Record<string, unknown>) => boolean): Promise<number> {
    return await this.#alone(async () => {
      const { events, records } = await this.#read()
      const [rows, beside] = [[...events, ...records], `${this.#path}.tmp`]
      const kept = rows.filter((row) => !isGone(row))
      if (kept.length < rows.length) {
        await writeFile(beside, textOf(kept), { mode: 0o600 })
        await rename(beside, this.#path)
      }
      return rows.length - kept.length
    })
  }

  /** Do the work when all before it is done. Throws Unavailable. */
  async #alone<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#last.then(work)
    this.#last = done.catch(() => {})
    return await done.catch((error) => {
      throw error.code ? new Unavailable(`${this.#path}: ${error.code}`) : error
    })
  }
}
