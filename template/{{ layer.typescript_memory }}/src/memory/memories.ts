// What a long-term memory can do, whatever keeps it.

import type { Place, Who } from './namespaces.ts'

export type Role = 'USER' | 'ASSISTANT'
/** Who said it, and what. */
export type Item = readonly [role: Role, text: string]

/** What is remembered: its score is from 0 to 1, and 0 where nothing was searched for. */
export interface MemoryRecord {
  readonly id: string
  readonly text: string
  readonly score: number
  readonly namespace: string
  /** ISO 8601. */
  readonly createdAt: string
}

/** What is told to a memory at once; sent again it is the same event, by its token. */
export interface Event {
  readonly who: Who
  /** At most 100, each of at most 100,000 UTF-16 units. */
  readonly items: readonly Item[]
  readonly token: string
  readonly at: Date
  /** The value of {projectId}, if namespaces need it. */
  readonly project: string | null
}

/** What GetMemory tells of a resource. */
export interface Resource {
  readonly status: string
  readonly strategies: readonly { readonly id: string; readonly namespaces: readonly string[] }[]
  readonly namespaceKeys: readonly string[]
}

/**
 * The long-term memory of one collection. Every call is bounded in time, and ends with `stop`.
 *
 * Each throws Unavailable, or Refused for what will never succeed.
 */
export interface Memory {
  /** What it contacts, without secrets. */
  readonly contact: string

  /** At most `topK` (1 to 100) records for a query of 1 to 10,000 UTF-16 units, best first. */
  retrieve(
    place: Place,
    query: string,
    topK: number,
    stop?: AbortSignal,
  ): Promise<readonly MemoryRecord[]>

  /** Tell the memory what was said; it extracts what is worth remembering later. */
  createEvent(event: Event, stop?: AbortSignal): Promise<void>

  /** The sessions of an actor, by their names in the memory. */
  sessions(actor: string): Promise<string[]>

  /** The ids of the events of such a session. */
  events(actor: string, session: string): Promise<string[]>

  /** Delete an event; one that is gone already counts as deleted. */
  deleteEvent(actor: string, session: string, event: string): Promise<void>

  /** Ids of records of a place, from a token on, and the token of more, if there are more. */
  records(place: Place, token?: string): Promise<[ids: string[], token?: string | undefined]>

  /** Delete records of this memory, and return how many were deleted. */
  deleteRecords(ids: readonly string[]): Promise<number>

  /** The resource as GetMemory tells it; null for one that is no resource. */
  describe(): Promise<Resource | null>
}
