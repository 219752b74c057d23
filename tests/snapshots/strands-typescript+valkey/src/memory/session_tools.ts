// What a store tells of one session, and how a session goes back to a checkpoint.

import { type Backend, Unsupported } from './backends.ts'
import { readOptions } from './options.ts'
import { readSnapshot } from './snapshots.ts'

const UNREADABLE = 'what is stored cannot be read, and the next turn sets it aside'
// What could move a cursor or turn a text around.
const UNPRINTABLE = /[\p{Cc}\p{Cs}\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu

/** What is told of a snapshot; its turn is null when it cannot be read. */
interface Summary {
  turn: number | null
  actor: string | null
  created_at: string | null
  restored_from: string | null
  bytes: number
}

/** What `sessions show` tells. */
interface Report extends Summary {
  session_id: string
  checkpoints: (Summary & { id: string })[]
  set_aside: string[]
}

/** What `sessions show` tells. Throws Unavailable. */
export async function reportOf(store: Backend, session: string): Promise<Report> {
  const stored = await store.load(session)
  const checkpoints: Report['checkpoints'] = []
  for (const id of await store.checkpoints(session)) {
    const kept = await store.load(session, null, id)
    checkpoints.push({ id, ...summaryOf(kept?.snapshot) })
  }
  const asides = await store.asides(session)
  return { session_id: session, ...summaryOf(stored?.snapshot), checkpoints, set_aside: asides }
}

function summaryOf(snapshot: string | null = ''): Summary {
  const text = readSnapshot(snapshot ?? '', readOptions()[0].maxSnapshotBytes)
  const { created_at = null, app_data: last = {} } = text === null ? {} : JSON.parse(text)
  const { turn = null, actor = null, restored_from = null } = last
  const time = created_at && String(created_at).replace(/\+00:00$/, 'Z')
  const bytes = Buffer.byteLength(snapshot ?? '')
  return { turn, actor, created_at: time, restored_from, bytes }
}

/** A summary of `reportOf` in one line, without what could move a cursor. */
export function describeTurn(summary: Summary): string {
  const { turn, actor, created_at: time, restored_from: origin, bytes } = summary
  if (turn === null) return `${UNREADABLE}, ${bytes} bytes`
  const who = actor === null ? 'no actor' : `actor ${actor}`
  const line = show(`turn ${turn}, ${who}, ${time}, ${bytes} bytes`)
  return origin ? `${line}, restored from ${show(origin)}` : line
}

/**
 * Save a checkpoint as the latest snapshot, and return its turn.
 *
 * Throws Conflict, Unavailable, and Unsupported when there is no such checkpoint.
 */
export async function takeBack(
  store: Backend,
  session: string,
  checkpoint: string,
): Promise<number> {
  const most = readOptions()[0].maxSnapshotBytes
  const kept = await store.load(session, null, checkpoint)
  const snapshot = kept && readSnapshot(kept.snapshot ?? '', most)
  if (snapshot === null) {
    const what = kept ? 'has an unreadable checkpoint' : 'has no checkpoint'
    throw new Unsupported(`Session ${session} ${what} ${checkpoint}.`)
  }
  const stored = await store.load(session)
  let expected = stored?.revision ?? null
  if (stored && readSnapshot(stored.snapshot ?? '', most) === null) {
    await store.setAside(session, stored.revision) // which a save would overwrite
    expected = null
  }
  const value = JSON.parse(snapshot)
  // Without its idempotency key, which would answer a new turn with the old reply.
  value.app_data = { ...value.app_data, key: null, restored_from: checkpoint }
  await store.save(session, JSON.stringify(value), expected)
  return value.app_data.turn
}

function show(value: unknown): string {
  const text = [...String(value).replace(UNPRINTABLE, '\ufffd')]
  return text.length <= 80 ? text.join('') : `${text.slice(0, 79).join('')}…`
}
