// Committed turns on their way to long-term memory: one event for each, beside the turns.

import { randomUUID } from 'node:crypto'

import { isBlank, wellFormed } from '../contract.ts'
import type { Item, Memory } from './memories.ts'
import type { Who } from './namespaces.ts'
import { Outbox, type Waiting, type Work } from './outbox.ts'

const LONGEST_TEXT = 100_000 // UTF-16 units, as the service counts
const MOST_ITEMS = 100 // of one event

/** A collection that is written to, and how. */
export interface Writer {
  readonly collectionId: string
  readonly memory: Memory
  /** Texts up to which turns that wait are joined. */
  readonly batchSize: number
  /** The value of {projectId}, if namespaces need it. */
  readonly project: string | null
}

type Said = { who: Who; items: readonly Item[]; at: Date }
type Attempt = (stop: AbortSignal) => Promise<unknown>

/** Takes what turns committed, and tells it to all writers. Never throws, and delays no turn. */
export class Recorder {
  readonly #events: readonly Outbox<Said>[]
  readonly #others = new Map<string, Outbox<Attempt>>()

  constructor(writers: readonly Writer[]) {
    this.#events = writers.map((one) => new Outbox(one.collectionId, takeBy(one)))
  }

  /** Whether something is still to be told. */
  get isWaiting(): boolean {
    return this.#outboxes.some((outbox) => outbox.isWaiting)
  }

  /** Tell the texts of one turn, in order; blank ones are left out. */
  record(who: Who, items: readonly Item[]): void {
    const pieces = prepare(items)
    if (pieces.length === 0) return
    const size = pieces.reduce((sum, [, text]) => sum + Buffer.byteLength(text), 0)
    const what = { who, items: pieces, at: new Date() }
    for (const outbox of this.#events) outbox.put({ what, size })
  }

  /** Do something else for one turn, after what waits under that name: until it succeeds. */
  put(name: string, attempt: Attempt, size: number): void {
    for (const [one, outbox] of this.#others) {
      if (!outbox.isWaiting) this.#others.delete(one) // so that they do not become ever more
    }
    const take = (waiting: Waiting<Attempt>[]) => ({ attempt: waiting.shift()!.what, turns: 1 })
    const outbox = this.#others.get(name) ?? new Outbox(name, take)
    this.#others.set(name, outbox)
    outbox.put({ what: attempt, size })
  }

  /** Tell what waits within this time; what cannot be told is lost, and the log says so. */
  async close(seconds: number): Promise<void> {
    await Promise.all(this.#outboxes.map((outbox) => outbox.close(seconds)))
  }

  get #outboxes(): (Outbox<Said> | Outbox<Attempt>)[] {
    return [...this.#events, ...this.#others.values()]
  }
}

/** The texts of one turn as the service takes them: adjacent ones joined, long ones split. */
export function prepare(items: readonly Item[]): Item[] {
  const joined: [role: Item[0], text: string][] = []
  for (const [role, text] of items) {
    if (isBlank(text)) continue
    const last = joined.at(-1)
    if (last?.[0] === role) last[1] += `\n\n${wellFormed(text)}`
    else joined.push([role, wellFormed(text)])
  }
  const pieces = joined.flatMap(([role, text]) => split(text).map((one): Item => [role, one]))
  return pieces.filter(([, text]) => !isBlank(text))
}

/** The text in pieces of as many UTF-16 units as a text may have, between characters. */
function split(text: string): string[] {
  const pieces: string[] = []
  for (let start = 0, end = 0; start < text.length; start = end) {
    end = start + LONGEST_TEXT
    if (/[\udc00-\udfff]/.test(text[end] ?? '')) end-- // not inside a surrogate pair
    pieces.push(text.slice(start, end))
  }
  return pieces
}

/** What makes one event of the first turn that waits, and of more of the same session. */
function takeBy({ memory, batchSize, project }: Writer): (waiting: Waiting<Said>[]) => Work {
  return (waiting) => {
    const { who, items: first, at } = waiting.shift()!.what
    const items = [...first]
    let turns = 1
    const own = waiting.filter(({ what }) => isSame(what.who, who))
    for (const other of own) {
      if (items.length + other.what.items.length > batchSize) break
      items.push(...other.what.items)
      waiting.splice(waiting.indexOf(other), 1)
      turns++
    }
    // A turn of more texts than one event takes is told in several.
    const events = Array.from({ length: Math.ceil(items.length / MOST_ITEMS) }, (_, index) => {
      const some = items.slice(index * MOST_ITEMS, (index + 1) * MOST_ITEMS)
      return { who, items: some, token: randomUUID(), at, project }
    })
    async function attempt(stop: AbortSignal): Promise<void> {
      for (let event = events[0]; event; event = events[0]) {
        await memory.createEvent(event, stop)
        stop.throwIfAborted() // or a later attempt would lose an event
        events.shift()
      }
    }
    return { attempt, turns }
  }
}

function isSame(one: Who, other: Who): boolean {
  return one.actor === other.actor && one.sessionId === other.sessionId
}
