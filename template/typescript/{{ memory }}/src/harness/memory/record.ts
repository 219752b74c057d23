// Record: committed turns on their way to long-term memory, one event for each, beside the turns.

import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'

import { metadataProblem } from '../collections/memory_backend.ts'
import { isBlank } from '../contract.ts'
import { describe, log } from '../log.ts'
import { describeFailure, isFor, MemoryRefused, MemoryUnavailable } from './base.ts'
import type { MemoryCollection, MemoryEvent, Turns, Utterance } from './base.ts'
import type { Who } from './namespaces.ts'
import { MemoryPolicy } from './policy.ts'
import type { MemoryTurn } from './recall.ts'
import { MAX_BYTES, MAX_TURNS, OUTSIDE, RetryQueue } from './retry_queue.ts'
import type { Waiting, Work } from './retry_queue.ts'
import type { MemorySettings } from './settings.ts'

/**
 * Returns the facts that a model finds in the texts of an actor's turns.
 *
 * Throws MemoryRefused if a repetition would fail, too, and MemoryUnavailable: a transient one if
 * the model was not billed.
 */
export type Extract = (actor: string, turns: Turns) => Promise<Utterance[]>

const MAX_TEXT_CHARS = 100_000 // UTF-16 units, as the service counts
const MAX_UTTERANCES = 100 // of one event
/** Calls of a model for the facts of a turn; it may bill each, also if it fails. */
export const MAX_CALLS = 3

type Turn = { readonly utterances: readonly Utterance[]; readonly at: Date }
type Said = Turn & { readonly identity: Who }
type Attempt = Work['attempt']
type Held = {
  readonly name: string
  readonly identity: Who
  readonly items: Waiting<Said>[]
  timer: NodeJS.Timeout | undefined
}

/** The memories of an agent, as the adapter of its framework uses them. */
export interface Memories {
  readonly settings: MemorySettings
  readonly readers: MemoryCollection[]
  readonly writers: MemoryCollection[]
  readonly recorder: Recorder
  /** Record the texts of a committed turn, and what was added in the turn. */
  record(turn: MemoryTurn, texts: readonly Utterance[]): void
}

/** Passes committed turns on to all collections that are written to. Never throws. */
export class Recorder {
  readonly #events: ReadonlyMap<string, RetryQueue<Said>>
  readonly #others = new Map<string, RetryQueue<Attempt>>()

  /** The turns of a session that wait for a trigger, by collection and session. */
  readonly #held = new Map<string, Held>()
  /** Whether `forget` erased the actor after a turn began. */
  readonly isForgotten: (actor: string, began: Date) => Promise<boolean>
  readonly extract: Extract | null
  readonly #policy: MemoryPolicy

  constructor(
    collections: readonly MemoryCollection[],
    isForgotten: Recorder['isForgotten'] = async () => false,
    extract: Extract | null = null,
    policy = new MemoryPolicy(),
  ) {
    this.#policy = policy
    this.isForgotten = isForgotten
    this.extract = extract
    this.#events = new Map(
      collections.map((one) => [one.id, new RetryQueue(one.id, nextEvent(one, this))]),
    )
  }

  /** Whether something is still to be recorded. */
  get isWaiting(): boolean {
    return this.#held.size > 0 || this.#queues.some((queue) => queue.isWaiting)
  }

  /** How many turns are still to be recorded, by the collection or store. */
  get waiting(): Map<string, number> {
    const turns = new Map(this.#queues.map((queue) => [queue.name, queue.turns]))
    for (const { name, items } of this.#held.values()) {
      turns.set(name, (turns.get(name) ?? 0) + items.length)
    }
    return turns
  }

  /** Record the texts of a turn that began `at` this time, in order, without blank ones. */
  record(identity: Who, utterances: readonly Utterance[], at: Date): void {
    const prepared = toRecord(identity, utterances, this.#policy)
    for (const name of this.#events.keys()) {
      const told = prepared.filter((one) => isFor(one, name))
      if (told.length === 0) continue
      const size = told.reduce((sum, [, text]) => sum + Buffer.byteLength(text), 0)
      this.#hold(name, { what: { identity, utterances: told, at }, size })
    }
  }

  /** Record the turns of a session that wait for more turns. */
  flush(sessionId: string): void {
    for (const [key, held] of this.#held) {
      if (held.identity.sessionId === sessionId) this.#release(key)
    }
  }

  /** Do something else for one turn until it succeeds, in the order of the session. */
  put(name: string, who: Who, attempt: Attempt, size: number): void {
    for (const [one, queue] of this.#others) {
      if (!queue.isWaiting) this.#others.delete(one) // their names may be endless
    }
    const take = (waiting: Waiting<Attempt>[]) => ({ attempt: waiting.shift()!.what, turns: 1 })
    const queue = this.#others.get(name) ?? new RetryQueue(name, take)
    this.#others.set(name, queue)
    queue.put(who, { what: attempt, size })
  }

  /** Record what waits within this time; what cannot be is lost, with a line in the log. */
  async close(seconds: number): Promise<void> {
    this.#releaseAll()
    await Promise.all(this.#queues.map((queue) => queue.close(seconds)))
  }

  #hold(name: string, waiting: Waiting<Said>): void {
    const { identity } = waiting.what
    const key = JSON.stringify([name, identity.actor, identity.sessionId])
    const held = this.#held.get(key) ?? { name, identity, items: [], timer: undefined }
    this.#held.set(key, held)
    held.items.push(waiting)
    const turns = held.items.map(({ what }) => what.utterances)
    if (isDue(this.#policy, name, identity, turns)) return this.#release(key)
    const longest = this.#policy.maxWaitSeconds * 1000
    held.timer ??= OUTSIDE(() => setTimeout(() => this.#release(key), longest))
    held.timer.unref()
    const items = [...this.#held.values()].flatMap((one) => one.items)
    const size = items.reduce((sum, one) => sum + one.size, 0)
    if (items.length > MAX_TURNS || size > MAX_BYTES) this.#releaseAll()
  }

  /** Pass on what was held, as one event if it fits. */
  #release(key: string): void {
    const held = this.#held.get(key)
    if (!held) return
    this.#held.delete(key)
    clearTimeout(held.timer)
    const items = held.items.map(({ what, size }) => ({ what, size, group: held }))
    this.#events.get(held.name)!.put(held.identity, ...items)
  }

  #releaseAll(): void {
    for (const key of this.#held.keys()) this.#release(key)
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
function withMetadata(policy: MemoryPolicy, identity: Who, given: Utterance): Utterance {
  const [role, text, own = {}, ...more] = given
  let why
  try {
    const metadata = { ...policy.metadataOf(identity, given), ...own }
    why = metadataProblem(metadata)
    if (!why) return [role, text, metadata, ...more]
  } catch (error) {
    why = describe(error) // of the owner; the text is recorded all the same
  }
  log('WARNING', `a text is recorded without its metadata: own_memory: ${why}`)
  return [role, text, own, ...more]
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

/** Make one event of the first turns that wait in a session. */
function nextEvent(
  collection: MemoryCollection,
  recorder: Recorder,
): (waiting: Waiting<Said>[]) => Work {
  return (waiting) => {
    const { what, group } = waiting.shift()!
    const { identity, ...first } = what
    let turns: Turn[] = [first]
    let count = first.utterances.length
    for (const other of waiting.slice()) {
      count += other.what.utterances.length
      if (other.group !== group && count > collection.batchSize) break
      turns.push(other.what)
      waiting.splice(waiting.indexOf(other), 1)
    }
    let events: MemoryEvent[] | null = null
    const textsOf = extracting(collection, recorder, identity.actor)
    const attempt = async (stop: AbortSignal): Promise<void> => {
      while (!events || events.length > 0) {
        const left = turns.slice()
        // The turns that began before `forget` erased the actor.
        while (left[0] && (await recorder.isForgotten(identity.actor, left[0].at))) left.shift()
        stop.throwIfAborted()
        if (!events || left.length < turns.length) {
          const texts = await textsOf(left)
          stop.throwIfAborted()
          const began = left.map(({ at }) => at)
          events = left[0] ? eventsOf(identity, texts, began, collection) : []
          turns = left
          if (collection.extracts) continue // `forget` may have run while the model answered
        }
        const [event] = events
        if (event) await collection.memory.createEvent(event)
        stop.throwIfAborted() // or a later attempt would lose an event
        events.shift()
      }
    }
    return { attempt, turns: turns.length }
  }
}

/**
 * Return what makes the texts to send of those of turns.
 *
 * A model that is late is awaited, and not asked again.
 */
function extracting(
  { id, extracts }: MemoryCollection,
  { extract }: Recorder,
  actor: string,
): (turns: readonly Turn[]) => Promise<Utterance[]> {
  const found = new Map<number, Promise<Utterance[]>>()
  let calls = 0
  const find = async (ask: Extract, said: Turns): Promise<Utterance[]> => {
    try {
      return await ask(actor, said)
    } catch (error) {
      if (!(error instanceof MemoryUnavailable && error.isTransient)) calls++
      if (calls < MAX_CALLS && !(error instanceof MemoryRefused)) throw error
      log('ERROR', `${id}: turns not recorded: ${said.length} (${describeFailure(error)})`)
      return said.flat().filter(([, , , , isFact]) => isFact)
    }
  }
  return async (turns) => {
    const said = turns.map(({ utterances }) => utterances)
    if (!extracts || !extract || said.length === 0) return said.flat()
    const facts = found.get(said.length) ?? find(extract, said)
    found.set(said.length, facts)
    facts.catch(() => found.delete(said.length))
    return await facts
  }
}

/** Return the texts that are recorded, as the service takes them, with their metadata. */
export function toRecord(
  identity: Who,
  utterances: readonly Utterance[],
  policy: MemoryPolicy,
): Utterance[] {
  const wanted = utterances.filter((one) => isWanted(policy, identity, one))
  return splitUtterances(wanted.map((one) => withMetadata(policy, identity, one)))
}

/** More texts than one event takes become several events, and so do texts of other metadata. */
export function eventsOf(
  identity: Who,
  texts: readonly Utterance[],
  began: readonly Date[],
  of: MemoryCollection,
): MemoryEvent[] {
  const parts: Utterance[][] = []
  for (const one of texts) {
    const part = parts.at(-1)
    const isFull = !part || part.length === MAX_UTTERANCES
    if (isFull || !isDeepStrictEqual(part[0]![2], one[2])) parts.push([one])
    else part.push(one)
  }
  return parts.map((utterances) => {
    const metadata = utterances[0]![2] ?? {}
    const token = randomUUID()
    const at = began[0]!
    return { identity, utterances, metadata, token, at, began, projectId: of.projectId }
  })
}

function isDue(policy: MemoryPolicy, name: string, identity: Who, turns: Turns): boolean {
  try {
    return policy.isDue(name, identity, turns)
  } catch (error) {
    log('WARNING', `turns are recorded now: own_memory failed: ${describe(error)}`)
    return true // of the owner; nothing is lost
  }
}

function isWanted(policy: MemoryPolicy, identity: Who, utterance: Utterance): boolean {
  try {
    return policy.isRecorded(identity, utterance)
  } catch (error) {
    log('WARNING', `a text is not recorded: own_memory failed: ${describe(error)}`)
    return false
  }
}
