// What every long-term memory does, how it fails, and how a call of it is limited.

import type { NamespaceConfig } from '../collections/memory_backend.ts'
import { describe } from '../log.ts'
import type { Namespace, Who } from './namespaces.ts'

/** The memory failed. The text is for the log: without secrets, prompts and replies. */
export class MemoryUnavailable extends Error {
  readonly isTransient: boolean
  /** The error code of AWS. */
  readonly code: string

  constructor(what: string, { isTransient = true, code = '' } = {}) {
    super(what)
    this.isTransient = isTransient
    this.code = code
  }
}

/** The memory refuses this request, and will refuse it again. */
export class MemoryRefused extends MemoryUnavailable {}

export type Metadata = Readonly<Record<string, string>>

/**
 * A text to record, in stores by name; without them in all that are written to.
 *
 * A fact was added to the memory as it is.
 */
export type Utterance = readonly [
  role: 'USER' | 'ASSISTANT',
  text: string,
  metadata?: Metadata,
  stores?: readonly string[] | undefined,
  isFact?: boolean,
]

/** Whether a store gets a text. */
export function isFor([, , , stores]: Utterance, name: string): boolean {
  return !stores || stores.includes(name)
}

/** The texts of each turn, in order. */
export type Turns = readonly (readonly Utterance[])[]

/** A record: its score is from 0 to 1, and 0 where nothing was searched for. */
export interface MemoryRecord {
  readonly id: string
  readonly text: string
  readonly score: number
  readonly namespace: string
  /** ISO 8601. */
  readonly createdAt: string
}

/** What one write says; sent again with the same token it is the same event. */
export interface MemoryEvent {
  readonly identity: Who
  /** At most 100, each of at most 100,000 UTF-16 units. */
  readonly utterances: readonly Utterance[]
  /** Of all its texts. */
  readonly metadata: Metadata
  readonly token: string
  readonly at: Date
  /** The starts of its turns. */
  readonly began: readonly Date[]
  /** The value of {projectId}, if namespaces need it. */
  readonly projectId: string | null
}

/** The search settings of namespaces, by template. */
export type Namespaces = Record<string, NamespaceConfig>

/** The long-term memory of one collection. Every call is limited in time; MemoryUnavailable. */
export interface Memory {
  /** What it contacts, without secrets. */
  readonly contact: string
  /** What a person has to know who erased something, or ''. */
  readonly afterErasure: string

  /** Return the namespaces to search for a collection. */
  namespaces(collection: MemoryCollection): Promise<Namespaces>

  /** Return the templates of all namespaces that may hold records of a collection. */
  templates(collection: MemoryCollection): Promise<string[]>

  /** Return the name of a place that only one collection may write to, or ''. */
  writesTo(): Promise<string>

  /** Make ready what the first turn would wait for. It does not throw. */
  warmUp(collection: MemoryCollection): Promise<void>

  /**
   * Return at most `topK` (1 to 100) records for 1 to 10,000 UTF-16 units, best first; only of
   * records that have this metadata.
   */
  retrieve(
    namespace: Namespace,
    query: string,
    topK: number,
    who: Who,
    metadata: Metadata,
  ): Promise<MemoryRecord[]>

  /** Send what was said; what is worth remembering is extracted later. */
  createEvent(event: MemoryEvent): Promise<void>

  /** Return the sessions of an actor, by their names in the memory. */
  sessions(actor: string): Promise<string[]>

  /** Yield the ids of the events of such a session, page by page. */
  events(actor: string, session: string): AsyncIterable<string[]>

  /** Delete an event, known or not. */
  deleteEvent(actor: string, session: string, event: string): Promise<void>

  /** Yield the ids of all records in a namespace, page by page. */
  records(namespace: Namespace): AsyncIterable<string[]>

  /**
   * Return the namespaces of records that name an actor.
   *
   * None where the memory cannot list records of unknown namespaces.
   */
  paths(actor: string): Promise<string[]>

  /** Delete a page of records, and return the ids that the memory reports as deleted. */
  deleteRecords(ids: readonly string[]): Promise<string[]>
}

/** A collection of long-term memory as this agent uses it. */
export interface MemoryCollection {
  readonly id: string
  /** Of its file, for models. */
  readonly description: string
  readonly lifetime: string
  readonly memory: Memory
  readonly isRead: boolean
  readonly isWritable: boolean
  readonly isErasable: boolean
  /** Up to this many utterances, turns that wait are joined to one event. */
  readonly batchSize: number
  /** Whether it keeps facts that a model finds in them. */
  readonly extracts: boolean
  readonly needsProject: boolean
  /** The value of {projectId}, if it is needed. */
  readonly projectId: string | null
  /** What is wanted of each namespace template; null: the resource says which there are. */
  readonly namespaces: Namespaces | null
}

/** Do the work, and throw MemoryUnavailable as soon as `stop` is aborted. */
export async function bounded<T>(
  stop: AbortSignal,
  why: string,
  work: () => Promise<T>,
): Promise<T> {
  const late = Promise.withResolvers<never>()
  const giveUp = () => late.reject(new MemoryUnavailable(why))
  stop.addEventListener('abort', giveUp, { once: true })
  if (stop.aborted) giveUp()
  try {
    return await Promise.race([late.promise, work()])
  } finally {
    stop.removeEventListener('abort', giveUp)
  }
}

/** Return why something failed, fit for the log. */
export function describeFailure(error: unknown): string {
  return error instanceof MemoryUnavailable ? error.message : describe(error)
}
