// Validates stored snapshots before a turn continues from them, and reads their actor.

import { isDeepStrictEqual } from 'node:util'

import { z } from 'zod'

import { findTurns, serialize, type Snapshot } from '../sessions/sessions.ts'
import type { DurableStore } from './base.ts'
import { areMessages } from './messages.ts'

export const UNREADABLE = Symbol('unreadable')
export const NOTHING = Symbol('nothing')

const VERSIONS = ['1.0', '1'] as const
const Envelope = z.object({ scope: z.string().optional(), schema_version: z.string().optional() })
/** A snapshot of any program whose messages have roles. */
const Foreign = z.object({
  data: z.object({ messages: z.array(z.object({ role: z.string() })).min(1) }),
  app_data: z.unknown().optional(),
})
const TurnStart = z.object({
  at: z.int().min(0),
  key: z.string().nullable(),
  other: z.looseObject({}).optional(),
})
const AppData = z.object({
  actor: z.string().nullable(),
  turn: z.int().min(0),
  key: z.string().nullable(),
  reply: z.string(),
  turns: z.array(TurnStart).optional(),
})
const Fields = z.object({
  scope: z.literal('agent').default('agent'),
  schema_version: z.enum(VERSIONS).transform(() => '1.0'),
  created_at: z.string().default('1970-01-01T00:00:00Z'),
  data: z.object({ messages: z.array(z.unknown()) }),
  app_data: AppData,
})
const Readable = Fields.refine(({ data: { messages }, app_data: { turn, turns } }) => {
  if (messages.length === 0) return turns?.length === 0
  if (turn === 0) return false
  const starts = [-1, ...(turns ?? []).map(({ at }) => at), messages.length]
  return areMessages(messages) && starts.every((at, index) => at < (starts[index + 1] ?? Infinity))
})

/**
 * Return the snapshot with its default fields, or null if it is unreadable.
 *
 * The memory-collection specification allows missing fields and the version "1". A snapshot of
 * more than `maxBytes` loses its oldest turns: the limit may have been higher at the last save.
 */
export function readSnapshot(stored: string, maxBytes: number): string | null {
  const snapshot = parse(stored)
  const read = Readable.safeParse(snapshot)
  if (!read.success) return null
  const { scope, schema_version, created_at } = read.data
  const whole = { ...(snapshot as Snapshot), scope, schema_version, created_at }
  if (Buffer.byteLength(stored) > maxBytes) return shorten(whole, maxBytes)
  return JSON.stringify(whole)
}

/** Remove the oldest turns, if necessary all, until the snapshot fits into `maxBytes`. */
function shorten({ data, app_data: last, ...rest }: Snapshot, maxBytes: number): string {
  const { messages } = data
  const turns = last.turns ?? findTurns(data)
  const before = [0]
  for (const message of messages) {
    before.push(before.at(-1)! + Buffer.byteLength(serialize(message)))
  }
  const whole = serialize({ ...rest, data, app_data: last })
  const excess = Buffer.byteLength(whole) - maxBytes
  const ends = [...turns.map(({ at }) => at), messages.length]
  let front = ends.shift()! // keep a summary before the first turn
  let end = ends.find((at) => before[at]! - before[front]! >= excess)
  if (end === undefined) [front, end] = [0, messages.length]
  const kept = [...messages.slice(0, front), ...messages.slice(end)]
  const later = turns.filter(({ at }) => at >= end)
  const starts = later.map((start) => ({ ...start, at: start.at - end + front }))
  const smaller = { ...rest, data: { ...data, messages: kept } }
  const shortened = serialize({ ...smaller, app_data: { ...last, turns: starts } })
  if (Buffer.byteLength(shortened) <= maxBytes) return shortened
  const reply = { key: null, reply: '' } // they belong to a removed turn
  return serialize({ ...smaller, app_data: { ...last, turns: starts, ...reply } })
}

/** Return the reason if another program or a newer version wrote the snapshot, or null. */
export function foreignFormat(stored: string): string | null {
  const value = parse(stored)
  const { scope, schema_version: version } = Envelope.safeParse(value).data ?? {}
  if (version !== undefined && !VERSIONS.some((known) => known === version))
    return 'its schema version is not 1.0'
  if (scope !== undefined && scope !== 'agent') return 'it does not belong to a single agent'
  const found = Foreign.safeParse(value)
  if (!found.success) return null
  if (!found.data.app_data) return 'it has no record of the turns'
  const { messages } = (value as Snapshot).data
  return areMessages(messages) ? null : 'its messages come from another framework'
}

/** Return the snapshot without its pending turn, which needs a save before its tools run. */
export function withoutPending(snapshot: string): string {
  const value = JSON.parse(snapshot)
  delete value.app_data.pending
  return JSON.stringify(value)
}

/** Return whether both are the same JSON value; a store may add an empty `state`. */
export function isSame(stored: string, snapshot: string): boolean {
  return isDeepStrictEqual(withState(parse(stored)), withState(parse(snapshot)))
}

function withState(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  return { ...value, data: { state: {}, ...('data' in value ? (value.data as object) : {}) } }
}

/** Parse JSON; return null if it is invalid. */
export function parse(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text)
    JSON.stringify(value) // throws if the value is nested too deeply
    return value
  } catch {
    return null
  }
}

/** Return the actor in the latest readable snapshot, or UNREADABLE; NOTHING without data. */
export async function ownerOf(store: DurableStore, sessionId: string): Promise<unknown> {
  const stored = await store.load(sessionId)
  const owner = actorIn(stored?.snapshot)
  if (owner !== UNREADABLE) return owner
  const checkpoints = await store.checkpoints(sessionId)
  for (const id of checkpoints.toReversed()) {
    const earlier = actorIn(await store.loadCheckpoint(sessionId, id))
    if (earlier !== UNREADABLE) return earlier
  }
  const isThere =
    stored || checkpoints.length > 0 || (await store.quarantined(sessionId)).length > 0
  return isThere ? UNREADABLE : NOTHING
}

/** Return the actor in a snapshot, even if other parts are invalid. */
export function actorIn(snapshot: string | null = null): unknown {
  try {
    const { actor } = JSON.parse(snapshot ?? '').app_data
    return actor === undefined ? UNREADABLE : actor
  } catch {
    return UNREADABLE
  }
}
