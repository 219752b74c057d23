// The interface of long-term memories, its data types and errors.

import type { NamespaceConfig } from '../collections/memory_backend.ts'
import { describe, placeOf } from '../log.ts'
import type { Namespace, Who } from './namespaces.ts'

/** The memory failed. The message is safe to log: no secrets, prompts or replies. */
export class MemoryUnavailable extends Error {
  readonly isTransient: boolean
  /** The AWS error code. */
  readonly code: string

  constructor(message: string, { isTransient = true, code = '' } = {}) {
    super(message)
    this.isTransient = isTransient
    this.code = code
  }
}

/** The memory rejects the request, and would reject a retry. */
export class MemoryRefused extends MemoryUnavailable {}

export type Metadata = Readonly<Record<string, string>>

/**
 * A text to record, its metadata, and the names of its stores; undefined: all writable stores.
 *
 * `isFact`: a tool or your code added it, so it is stored unchanged.
 */
export type Utterance = readonly [
  role: 'USER' | 'ASSISTANT',
  text: string,
  metadata?: Metadata,
  stores?: readonly string[] | undefined,
  isFact?: boolean,
]

/** Whether a store receives a text. */
export function isFor([, , , stores]: Utterance, name: string): boolean {
  return !stores || stores.includes(name)
}

/** The texts of each turn, in order. */
export type Turns = readonly (readonly Utterance[])[]

/** A memory, and its relevance to the query, from 0 to 1. */
export interface MemoryRecord {
  readonly id: string
  readonly text: string
  readonly score: number
  readonly namespace: string
  /** ISO 8601. */
  readonly createdAt: string
}

/** The texts of one write to a memory; the token makes retries idempotent. */
export interface MemoryEvent {
  readonly identity: Who
  /** At most 100, each of at most 100,000 UTF-16 units. */
  readonly utterances: readonly Utterance[]
  /** The metadata that all texts of the event share. */
  readonly metadata: Metadata
  readonly token: string
  readonly at: Date
  /** The start times of its turns. */
  readonly startTimes: readonly Date[]
  /** The value of {projectId}, if namespaces need it. */
  readonly projectId: string | null
}

/** The search settings of namespaces, by template. */
export type Namespaces = Record<string, NamespaceConfig>

/** The id and the paths of a record. */
export type Entry = [id: string, paths: string[]]

/** The long-term memory of one collection. Calls have a time limit, and throw MemoryUnavailable. */
export interface Memory {
  /** The file or service for messages, without secrets. */
  readonly contact: string
  /** A note for the report of `forget`, or ''. */
  readonly afterErasure: string

  /** Return the namespaces of a collection to search, by template. */
  namespaces(collection: MemoryCollection): Promise<Namespaces>

  /** Return the templates of all namespaces that may hold records of a collection. */
  templates(collection: MemoryCollection): Promise<string[]>

  /** Return the name of a resource that only one collection may write to, or ''. */
  writesTo(): Promise<string>

  /** Prepare clients so that the first turn does not wait. Never throws. */
  warmUp(collection: MemoryCollection): Promise<void>

  /**
   * Return at most `topK` (1 to 100) records for a query of at most 10,000 UTF-16 units.
   *
   * Return only records that have all of `metadata`.
   */
  retrieve(
    namespace: Namespace,
    query: string,
    topK: number,
    identity: Who,
    metadata: Metadata,
  ): Promise<MemoryRecord[]>

  /** Send the texts of turns, from which the memory extracts records. */
  createEvent(event: MemoryEvent): Promise<void>

  /** Return the sessions of an actor, by their names in the memory. */
  sessions(actor: string): Promise<string[]>

  /** Return all actors with sessions. */
  actors(): Promise<string[]>

  /** Yield the ids of the events of a session, page by page. */
  events(actor: string, session: string): AsyncIterable<string[]>

  /** Delete an event. Idempotent. */
  deleteEvent(actor: string, session: string, event: string): Promise<void>

  /** Yield the records in a namespace with their paths, page by page. */
  entries(namespace: Namespace): AsyncIterable<Entry[]>

  /** Yield the ids of all records in a namespace, page by page. */
  records(namespace: Namespace): AsyncIterable<string[]>

  /** Delete a page of records, and return the ids that the memory reports as deleted. */
  deleteRecords(ids: readonly string[]): Promise<string[]>
}

/** A collection of long-term memory as this agent uses it. */
export interface MemoryCollection {
  readonly id: string
  /** From the collection file, for models. */
  readonly description: string
  readonly lifetime: string
  readonly memory: Memory
  readonly isRead: boolean
  readonly isWritable: boolean
  readonly isErasable: boolean
  /** Maximum number of texts per event that joins several turns. */
  readonly batchSize: number
  /** Whether a model extracts facts before it stores them. */
  readonly extracts: boolean
  readonly needsProject: boolean
  /** The value of {projectId}, if namespaces need it. */
  readonly projectId: string | null
  /** Search settings by namespace template; null: the resource defines the namespaces. */
  readonly namespaces: Namespaces | null
}

/** Do the work; throw MemoryUnavailable as soon as `stop` is aborted. */
export async function bounded<T>(
  stop: AbortSignal,
  reason: string,
  work: () => Promise<T>,
): Promise<T> {
  const stopped = Promise.withResolvers<never>()
  const giveUp = () => stopped.reject(new MemoryUnavailable(reason))
  stop.addEventListener('abort', giveUp, { once: true })
  if (stop.aborted) giveUp()
  try {
    return await Promise.race([stopped.promise, work()])
  } finally {
    stop.removeEventListener('abort', giveUp)
  }
}

/** Return the reason for a failure, safe to log. */
export function describeFailure(error: unknown): string {
  return error instanceof MemoryUnavailable ? error.message : describe(error)
}

/** Return the reason for a failure in an owner's code, with file and line, for the log. */
export function locateFailure(error: unknown): string {
  const isKnown = error instanceof MemoryUnavailable
  return isKnown ? error.message : describe(error) + placeOf(error)
}
