// Record: committed turns on their way to long-term memory, one event for each, beside the turns.

import { randomUUID } from 'node:crypto'

import { isBlank } from '../contract.ts'
import type { MemoryCollection, Utterance } from './base.ts'
import type { Who } from './namespaces.ts'
import { RetryQueue, type Waiting, type Work } from './retry_queue.ts'

const MAX_TEXT_CHARS = 100_000 // UTF-16 units, as the service counts
const MAX_UTTERANCES = 100 // of one event

type Said = { identity: Who; utterances: readonly Utterance[]; at: Date }
type Attempt = Work['attempt']

/** Passes committed turns on to all collections that are written to. Never throws. */
export class Recorder {
  readonly #events: readonly RetryQueue<Said>[]
  readonly #others = new Map<string, RetryQueue<Attempt>>()

  /** Whether `forget` erased the actor after a turn began. */
  readonly isForgotten: (actor: string, began: Date) => Promise<boolean>

  constructor(
    collections: readonly MemoryCollection[],
    isForgotten: Recorder['isForgotten'] = async () => false,
  ) {
    this.isForgotten = isForgotten
    this.#events = collections.map((collection) => {
      return new RetryQueue(collection.id, nextEvent(collection, this))
    })
  }

  /** Whether something is still to be recorded. */
  get isWaiting(): boolean {
    return this.#queues.some((queue) => queue.isWaiting)
  }

  /** Record the texts of a turn that began `at` this time, in order, without blank ones. */
  record(identity: Who, utterances: readonly Utterance[], at: Date): void {
    const prepared = splitUtterances(utterances)
    if (prepared.length === 0) return
    const size = prepared.reduce((sum, [, text]) => sum + Buffer.byteLength(text), 0)
    const what = { identity, utterances: prepared, at }
    for (const queue of this.#events) queue.put({ what, size })
  }

  /** Do something else for one turn until it succeeds, after what waits under that name. */
  put(name: string, attempt: Attempt, size: number): void {
    for (const [one, queue] of this.#others) {
      if (!queue.isWaiting) this.#others.delete(one) // their names may be endless
    }
    const take = (waiting: Waiting<Attempt>[]) => ({ attempt: waiting.shift()!.what, turns: 1 })
    const queue = this.#others.get(name) ?? new RetryQueue(name, take)
    this.#others.set(name, queue)
    queue.put({ what: attempt, size })
  }

  /** Record what waits within this time; what cannot be is lost, with a line in the log. */
  async close(seconds: number): Promise<void> {
    await Promise.all(this.#queues.map((queue) => queue.close(seconds)))
  }

  get #queues(): (RetryQueue<Said> | RetryQueue<Attempt>)[] {
    return [...this.#events, ...this.#others.values()]
  }
}

/** The texts of one turn as the service takes them: adjacent ones joined, long ones split. */
export function splitUtterances(utterances: readonly Utterance[]): Utterance[] {
  const joined: [role: Utterance[0], text: string][] = []
  for (const [role, text] of utterances) {
    if (isBlank(text)) continue
    const last = joined.at(-1)
    if (last?.[0] === role) last[1] += `\n\n${text.toWellFormed()}`
    else joined.push([role, text.toWellFormed()])
  }
  const pieces = joined.flatMap(([role, text]) => split(text).map((one): Utterance => [role, one]))
  return pieces.filter(([, text]) => !isBlank(text))
}

/** Split a text between characters, into pieces that the service takes. */
function split(text: string): string[] {
  const pieces: string[] = []
  for (let start = 0, end = 0; start < text.length; start = end) {
    end = start + MAX_TEXT_CHARS
    if (/[\udc00-\udfff]/.test(text[end] ?? '')) end-- // not inside a surrogate pair
    pieces.push(text.slice(start, end))
  }
  return pieces
}

/** Make one event of the first turn that waits, and of more turns of the same session. */
function nextEvent(
  collection: MemoryCollection,
  recorder: Recorder,
): (waiting: Waiting<Said>[]) => Work {
  const { memory, batchSize, projectId } = collection
  return (waiting) => {
    const { identity, utterances: first, at } = waiting.shift()!.what
    const all = [...first]
    let turns = 1
    for (const other of waiting.filter(({ what }) => isSame(what.identity, identity))) {
      if (all.length + other.what.utterances.length > batchSize) break
      all.push(...other.what.utterances)
      waiting.splice(waiting.indexOf(other), 1)
      turns++
    }
    // A turn of more texts than one event takes becomes several.
    const events = Array.from({ length: Math.ceil(all.length / MAX_UTTERANCES) }, (_, index) => {
      const utterances = all.slice(index * MAX_UTTERANCES, (index + 1) * MAX_UTTERANCES)
      return { identity, utterances, token: randomUUID(), at, projectId }
    })
    const attempt = async (stop: AbortSignal): Promise<void> => {
      for (let event = events[0]; event; event = events[0]) {
        if (await recorder.isForgotten(identity.actor, at)) return
        await memory.createEvent(event)
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
