// Record committed turns: send them to long-term memory as events, in the background.

import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'

import { metadataProblem } from '../collections/memory_backend.ts'
import { isBlank } from '../contract.ts'
import { log } from '../log.ts'
import { describeFailure, isFor, locateFailure, MemoryRefused } from './base.ts'
import { MemoryUnavailable } from './base.ts'
import type { MemoryCollection, MemoryEvent, Turns, Utterance } from './base.ts'
import type { Who } from './namespaces.ts'
import { MemoryPolicy } from './policy.ts'
import type { MemoryTurn } from './recall.ts'
import { MAX_BYTES, MAX_TURNS, outsideTurn, RetryQueue } from './retry_queue.ts'
import type { QueueItem, Work } from './retry_queue.ts'
import type { MemorySettings } from './settings.ts'

/**
 * Extracts facts from the texts of an actor's turns.
 *
 * Throws MemoryRefused if a retry would fail too, else MemoryUnavailable, which is transient if the
 * model was not billed.
 */
export type Extract = (actor: string, turns: Turns) => Promise<Utterance[]>

const MAX_TEXT_CHARS = 100_000 // UTF-16 units, as in AgentCore
const MAX_UTTERANCES = 100 // per event
/** Model calls per extraction: failed calls may be billed too. */
export const MAX_CALLS = 3

type RecordedTurn = { readonly utterances: readonly Utterance[]; readonly startedAt: Date }
type QueuedTurn = RecordedTurn & { readonly identity: Who }
type Attempt = Work['attempt']
type Batch = {
  readonly name: string
  readonly identity: Who
  readonly items: QueueItem<QueuedTurn>[]
  timer: NodeJS.Timeout | undefined
}

/** The interface of LongTermMemory for the framework's adapter. */
export interface Memories {
  readonly settings: MemorySettings
  readonly readers: MemoryCollection[]
  readonly writers: MemoryCollection[]
  readonly recorder: Recorder
  /** Record the texts of a committed turn, and its added texts. */
  record(turn: MemoryTurn, texts: readonly Utterance[]): void
}

/** Sends committed turns to all writers. Never throws or delays a turn. */
export class Recorder {
  readonly #events: ReadonlyMap<string, RetryQueue<QueuedTurn>>
  readonly #others = new Map<string, RetryQueue<Attempt>>()

  /** Turns to record together, by collection and session. */
  readonly #batches = new Map<string, Batch>()
  /** Whether `forget` erased an actor after a turn began. Needs a session store. */
  readonly isForgotten: (actor: string, startedAt: Date) => Promise<boolean>
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
      collections.map((writer) => [writer.id, new RetryQueue(writer.id, nextEvent(writer, this))]),
    )
  }

  /** Whether some turns have not been sent. */
  get isWaiting(): boolean {
    return this.#batches.size > 0 || this.#queues.some((queue) => queue.isWaiting)
  }

  /** The number of unsent turns by collection or store. */
  get waiting(): Map<string, number> {
    const turns = new Map(this.#queues.map((queue) => [queue.name, queue.turns]))
    for (const { name, items } of this.#batches.values()) {
      turns.set(name, (turns.get(name) ?? 0) + items.length)
    }
    return turns
  }

  /** Send the texts of a turn, in order, without blank texts. */
  record(identity: Who, utterances: readonly Utterance[], startedAt: Date): void {
    const prepared = toRecord(identity, utterances, this.#policy)
    for (const name of this.#events.keys()) {
      const selected = prepared.filter((utterance) => isFor(utterance, name))
      if (selected.length === 0) continue
      const size = selected.reduce((sum, [, text]) => sum + Buffer.byteLength(text), 0)
      this.#addToBatch(name, { payload: { identity, utterances: selected, startedAt }, size })
    }
  }

  /** Send the session's batched turns now. */
  flush(sessionId: string): void {
    for (const [key, batch] of this.#batches) {
      if (batch.identity.sessionId === sessionId) this.#sendBatch(key)
    }
  }

  /** Retry other work of a turn until it succeeds, in the order of the session. */
  put(name: string, identity: Who, attempt: Attempt, size: number): void {
    for (const [other, queue] of this.#others) {
      if (!queue.isWaiting) this.#others.delete(other) // the owner's names may be unbounded
    }
    const take = (waiting: QueueItem<Attempt>[]) => ({
      attempt: waiting.shift()!.payload,
      turns: 1,
    })
    const queue = this.#others.get(name) ?? new RetryQueue(name, take)
    this.#others.set(name, queue)
    queue.put(identity, { payload: attempt, size })
  }

  /** Send waiting turns within `seconds`; the log reports lost turns. */
  async close(seconds: number): Promise<void> {
    this.#sendBatches()
    await Promise.all(this.#queues.map((queue) => queue.close(seconds)))
  }

  #addToBatch(name: string, waiting: QueueItem<QueuedTurn>): void {
    const { identity } = waiting.payload
    const key = JSON.stringify([name, identity.actor, identity.sessionId])
    const batch = this.#batches.get(key) ?? { name, identity, items: [], timer: undefined }
    this.#batches.set(key, batch)
    batch.items.push(waiting)
    const turns = batch.items.map(({ payload }) => payload.utterances)
    if (isDue(this.#policy, name, identity, turns)) return this.#sendBatch(key)
    const longest = this.#policy.maxWaitSeconds * 1000
    batch.timer ??= outsideTurn(() => setTimeout(() => this.#sendBatch(key), longest))
    batch.timer.unref()
    const items = [...this.#batches.values()].flatMap((other) => other.items)
    const size = items.reduce((sum, item) => sum + item.size, 0)
    if (items.length > MAX_TURNS || size > MAX_BYTES) this.#sendBatches()
  }

  /** Send the turns of a batch, as one event if they fit. */
  #sendBatch(key: string): void {
    const batch = this.#batches.get(key)
    if (!batch) return
    this.#batches.delete(key)
    clearTimeout(batch.timer)
    const items = batch.items.map(({ payload, size }) => ({ payload, size, group: batch }))
    this.#events.get(batch.name)!.put(batch.identity, ...items)
  }

  #sendBatches(): void {
    for (const key of this.#batches.keys()) this.#sendBatch(key)
  }

  get #queues(): (RetryQueue<QueuedTurn> | RetryQueue<Attempt>)[] {
    return [...this.#events.values(), ...this.#others.values()]
  }
}

/** Join adjacent texts of a speaker, and split texts that are too long for the service. */
export function splitUtterances(utterances: readonly Utterance[]): Utterance[] {
  const joined: Utterance[] = []
  for (const [role, text, ...more] of utterances) {
    if (isBlank(text)) continue
    const last = joined.at(-1)
    const whole = text.toWellFormed()
    const isJoined = last && isDeepStrictEqual([last[0], ...last.slice(2)], [role, ...more])
    if (isJoined) joined[joined.length - 1] = [role, `${last[1]}\n\n${whole}`, ...more]
    else joined.push([role, whole, ...more])
  }
  const pieces = joined.flatMap(([role, text, ...more]) => {
    return split(text).map((piece): Utterance => [role, piece, ...more])
  })
  return pieces.filter(([, text]) => !isBlank(text))
}

/** Add the owner's metadata to a text, unless it is invalid. */
function withMetadata(policy: MemoryPolicy, identity: Who, utterance: Utterance): Utterance {
  const [role, text, ownMetadata = {}, ...more] = utterance
  let reason
  try {
    const metadata = { ...policy.metadataOf(identity, utterance), ...ownMetadata }
    reason = metadataProblem(metadata)
    if (!reason) return [role, text, metadata, ...more]
  } catch (error) {
    reason = locateFailure(error) // owner's code; the text is still recorded
  }
  log('WARNING', `text is recorded without its metadata: own_memory: ${reason}`)
  return [role, text, ownMetadata, ...more]
}

/** Split a text into pieces that the service accepts, not inside a surrogate pair. */
function split(text: string): string[] {
  const pieces: string[] = []
  for (let start = 0, end = 0; start < text.length; start = end) {
    end = start + MAX_TEXT_CHARS
    if (/[\udc00-\udfff]/.test(text[end] ?? '')) end--
    pieces.push(text.slice(start, end))
  }
  return pieces
}

/** Return a function that turns the first waiting turns of a session into a job. */
function nextEvent(
  collection: MemoryCollection,
  recorder: Recorder,
): (waiting: QueueItem<QueuedTurn>[]) => Work {
  return (waiting) => {
    const { payload, group } = waiting.shift()!
    const { identity, ...first } = payload
    let turns: RecordedTurn[] = [first]
    let count = first.utterances.length
    for (const other of waiting.slice()) {
      count += other.payload.utterances.length
      if (other.group !== group && count > collection.batchSize) break
      turns.push(other.payload)
      waiting.splice(waiting.indexOf(other), 1)
    }
    let events: MemoryEvent[] | null = null
    const textsOf = extractor(collection, recorder, identity.actor)
    const attempt = async (stop: AbortSignal): Promise<void> => {
      while (!events || events.length > 0) {
        const remaining = turns.slice()
        // Drop turns that began before `forget` erased the actor.
        while (remaining[0] && (await recorder.isForgotten(identity.actor, remaining[0].startedAt)))
          remaining.shift()
        stop.throwIfAborted()
        if (!events || remaining.length < turns.length) {
          const texts = await textsOf(remaining)
          stop.throwIfAborted()
          const startTimes = remaining.map(({ startedAt }) => startedAt)
          events = remaining[0] ? eventsOf(identity, texts, startTimes, collection) : []
          turns = remaining
          if (collection.extracts) continue // `forget` may have run while the model answered
        }
        const [event] = events
        if (event) await collection.memory.createEvent(event)
        stop.throwIfAborted() // a later attempt sends the event again
        events.shift()
      }
    }
    return { attempt, turns: turns.length }
  }
}

/**
 * Return a function that maps turns to the texts to send: extracted facts, if declared.
 *
 * A retry awaits a late extraction instead of starting another.
 */
function extractor(
  { id, extracts }: MemoryCollection,
  { extract }: Recorder,
  actor: string,
): (turns: readonly RecordedTurn[]) => Promise<Utterance[]> {
  const extractions = new Map<number, Promise<Utterance[]>>()
  let calls = 0
  const find = async (extractFacts: Extract, texts: Turns): Promise<Utterance[]> => {
    try {
      return await extractFacts(actor, texts)
    } catch (error) {
      if (!(error instanceof MemoryUnavailable && error.isTransient)) calls++
      if (calls < MAX_CALLS && !(error instanceof MemoryRefused)) throw error
      log('ERROR', `${id}: turns not recorded: ${texts.length} (${describeFailure(error)})`)
      return texts.flat().filter(([, , , , isFact]) => isFact)
    }
  }
  return async (turns) => {
    const texts = turns.map(({ utterances }) => utterances)
    if (!extracts || !extract || texts.length === 0) return texts.flat()
    const facts = extractions.get(texts.length) ?? find(extract, texts)
    extractions.set(texts.length, facts)
    facts.catch(() => extractions.delete(texts.length))
    return await facts
  }
}

/** Return the texts to record, in sizes that the service accepts, with metadata. */
export function toRecord(
  identity: Who,
  utterances: readonly Utterance[],
  policy: MemoryPolicy,
): Utterance[] {
  const recorded = utterances.filter((utterance) => isRecorded(policy, identity, utterance))
  return splitUtterances(recorded.map((utterance) => withMetadata(policy, identity, utterance)))
}

/**
 * Return the texts of turns as events; `startTimes` are the start times of the turns.
 *
 * An event contains at most MAX_UTTERANCES texts, all with equal metadata.
 */
export function eventsOf(
  identity: Who,
  texts: readonly Utterance[],
  startTimes: readonly Date[],
  { projectId }: MemoryCollection,
): MemoryEvent[] {
  const parts: Utterance[][] = []
  for (const text of texts) {
    const part = parts.at(-1)
    const isFull = !part || part.length === MAX_UTTERANCES
    if (isFull || !isDeepStrictEqual(part[0]![2], text[2])) parts.push([text])
    else part.push(text)
  }
  return parts.map((utterances) => {
    const metadata = utterances[0]![2] ?? {}
    const token = randomUUID()
    const at = startTimes[0]!
    return { identity, utterances, metadata, token, at, startTimes, projectId }
  })
}

function isDue(policy: MemoryPolicy, name: string, identity: Who, turns: Turns): boolean {
  try {
    return policy.isDue(name, identity, turns)
  } catch (error) {
    log('WARNING', `recording turns now: own_memory failed: ${locateFailure(error)}`)
    return true // owner's code; no turn is lost
  }
}

function isRecorded(policy: MemoryPolicy, identity: Who, utterance: Utterance): boolean {
  try {
    return policy.isRecorded(identity, utterance)
  } catch (error) {
    log('WARNING', `text is not recorded: own_memory failed: ${locateFailure(error)}`)
    return false
  }
}
