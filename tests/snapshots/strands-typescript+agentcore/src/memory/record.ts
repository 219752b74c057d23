// Record: committed turns on their way to long-term memory, one event for each, beside the turns.

import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'

import { metadataProblem } from '../collections/memory_backend.ts'
import { isBlank } from '../contract.ts'
import { describe, log } from '../log.ts'
import type { MemoryCollection, Utterance } from './base.ts'
import { metadataOf } from './metadata.ts'
import type { Who } from './namespaces.ts'
import { RetryQueue, type Waiting, type Work } from './retry_queue.ts'

const MAX_TEXT_CHARS = 100_000 // UTF-16 units, as the service counts
const MAX_UTTERANCES = 100 // of one event

type Said = { identity: Who; utterances: readonly Utterance[]; at: Date }
type Attempt = Work['attempt']

/** Passes committed turns on to all collections that are written to. Never throws. */
export class Recorder {
  readonly #events: ReadonlyMap<string, RetryQueue<Said>>
  readonly #others = new Map<string, RetryQueue<Attempt>>()

  /** Whether `forget` erased the actor after a turn began. */
  readonly isForgotten: (actor: string, began: Date) => Promise<boolean>

  constructor(
    collections: readonly MemoryCollection[],
    isForgotten: Recorder['isForgotten'] = async () => false,
  ) {
    this.isForgotten = isForgotten
    this.#events = new Map(
      collections.map((one) => [one.id, new RetryQueue(one.id, nextEvent(one, this))]),
    )
  }

  /** Whether something is still to be recorded. */
  get isWaiting(): boolean {
    return this.#queues.some((queue) => queue.isWaiting)
  }

  /** Record the texts of a turn that began `at` this time, in order, without blank ones. */
  record(identity: Who, utterances: readonly Utterance[], at: Date): void {
    const prepared = splitUtterances(utterances.map((one) => withMetadata(identity, one)))
    for (const [name, queue] of this.#events) {
      const told = prepared.filter(([, , , stores]) => !stores || stores.includes(name))
      if (told.length === 0) continue
      const size = told.reduce((sum, [, text]) => sum + Buffer.byteLength(text), 0)
      queue.put({ what: { identity, utterances: told, at }, size })
    }
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
    return [...this.#events.values(), ...this.#others.values()]
  }
}

/** The texts of one turn as the service takes them: adjacent ones joined, long ones split. */
export function splitUtterances(utterances: readonly Utterance[]): Utterance[] {
  const joined: Utterance[] = []
  for (const [role, text, ...more] of utterances) {
    if (isBlank(text)) continue
    const [last, whole] = [joined.at(-1), text.toWellFormed()]
    const isJoined = last && isDeepStrictEqual([last[0], ...last.slice(2)], [role, ...more])
    if (isJoined) joined[joined.length - 1] = [role, `${last[1]}\n\n${whole}`, ...more]
    else joined.push([role, whole, ...more])
  }
  const pieces = joined.flatMap(([role, text, ...more]) => {
    return split(text).map((one): Utterance => [role, one, ...more])
  })
  return pieces.filter(([, text]) => !isBlank(text))
}

/** Add the metadata of the owner to a text, or none if it cannot be used. */
function withMetadata(identity: Who, [role, text, own = {}, stores]: Utterance): Utterance {
  let why
  try {
    const metadata = { ...metadataOf(identity, [role, text, own, stores]), ...own }
    why = metadataProblem(metadata)
    if (!why) return [role, text, metadata, stores]
  } catch (error) {
    why = describe(error) // of the owner; the text is recorded all the same
  }
  log('WARNING', `a text is recorded without its metadata: memory/metadata: ${why}`)
  return [role, text, own, stores]
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
    // More texts than one event takes become several, and so do texts of other metadata.
    const parts: Utterance[][] = []
    for (const one of all) {
      const part = parts.at(-1)
      const isFull = !part || part.length === MAX_UTTERANCES
      if (isFull || !isDeepStrictEqual(part[0]![2], one[2])) parts.push([one])
      else part.push(one)
    }
    const events = parts.map((utterances) => {
      const metadata = utterances[0]![2] ?? {}
      return { identity, utterances, metadata, token: randomUUID(), at, projectId }
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
