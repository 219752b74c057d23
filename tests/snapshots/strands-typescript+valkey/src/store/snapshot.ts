// Reads stored bytes: validates them before a turn continues from them, and finds their actor.

import { isDeepStrictEqual } from 'node:util'

import { z } from 'zod'

import type { DurableStore } from './base.ts'
import { areMessages } from './messages.ts'

export const UNREADABLE = Symbol('unreadable')

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
  schema_version: z.enum(['1.0', '1']).transform(() => '1.0'),
  created_at: z.string().default('1970-01-01T00:00:00Z'),
  data: z.object({ messages: z.array(z.unknown()) }),
  app_data: AppData,
})
const Snapshot = Fields.refine(({ data: { messages }, app_data: { turn, turns } }) => {
  if (messages.length === 0) return turns?.length === 0
  if (turn === 0) return false
  const starts = [-1, ...(turns ?? []).map(({ at }) => at), messages.length]
  return areMessages(messages) && starts.every((at, index) => at < (starts[index + 1] ?? Infinity))
})

/** Return the snapshot with its defaults; null where it is invalid or longer than `maxBytes`. */
export function readSnapshot(stored: string, maxBytes: number): string | null {
  const snapshot = Buffer.byteLength(stored) <= maxBytes ? parse(stored) : null
  const read = Snapshot.safeParse(snapshot)
  if (!read.success) return null
  const { scope, schema_version, created_at } = read.data
  return JSON.stringify({ ...(snapshot as object), scope, schema_version, created_at })
}

/** Whether both are the same JSON value; an empty `state` may be missing in one. */
export function isSame(stored: string, snapshot: string): boolean {
  return isDeepStrictEqual(withState(parse(stored)), withState(parse(snapshot)))
}

function withState(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  return { ...value, data: { state: {}, ...('data' in value ? (value.data as object) : {}) } }
}

function parse(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text)
    JSON.stringify(value) // throws where it is nested too deeply to work with
    return value
  } catch {
    return null
  }
}

/** Return the actor in the latest readable snapshot, null where nothing is stored. */
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
  return isThere ? UNREADABLE : null
}

/** Return the actor in a snapshot, even in one that no turn could continue from. */
function actorIn(snapshot: string | null = null): unknown {
  try {
    const { actor } = JSON.parse(snapshot ?? '').app_data
    return actor === undefined ? UNREADABLE : actor
  } catch {
    return UNREADABLE
  }
}
