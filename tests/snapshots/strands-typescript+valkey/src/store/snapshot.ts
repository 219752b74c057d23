// The conditions that stored bytes must meet before a turn continues from them.

import { isDeepStrictEqual } from 'node:util'

import { z } from 'zod'

import { areMessages } from './messages.ts'

const AppData = z.object({
  actor: z.string().nullable(),
  turn: z.int().min(1),
  key: z.string().nullable(),
  reply: z.string(),
})
const Snapshot = z.object({
  scope: z.literal('agent').default('agent'),
  schema_version: z.enum(['1.0', '1']).transform(() => '1.0'),
  created_at: z.string().default('1970-01-01T00:00:00Z'),
  data: z.object({ messages: z.unknown().refine(areMessages) }),
  app_data: AppData,
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
