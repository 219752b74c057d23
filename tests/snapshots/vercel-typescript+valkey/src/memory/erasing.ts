// How what a memory has of one person is erased: in parts, and again when the service is busy.

import { setTimeout as sleep } from 'node:timers/promises'

import { Unavailable } from './backends.ts'
import type { Memory } from './memories.ts'
import type { Place } from './namespaces.ts'

const PAUSES = [500, 2000] // milliseconds before it is tried again
const BUSY = /Thrott|RetryableConflict|too many requests/

/** What was erased of an actor, what could not be, and what else there is to know. */
export interface Report {
  readonly actor: string
  sessions: number
  events: number
  records: number
  readonly could_not: string[]
  notes: string[]
}

/** The report as text. */
export function linesOf(report: Report): string[] {
  const counts = (['sessions', 'events', 'records'] as const).map(
    (name) => `${name} erased: ${report[name]}`,
  )
  const wrong = report.could_not.map((what) => `could not: ${what}`)
  return [...counts, ...wrong, ...report.notes.map((what) => `note: ${what}`)]
}

/** What it returns, now or soon. Throws Unavailable. */
export async function patiently<T>(work: () => Promise<T>): Promise<T> {
  for (const pause of PAUSES) {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error
      if (error.isCertain && !BUSY.test(error.message)) throw error
    }
    await sleep(pause)
  }
  return await work()
}

/** Delete what the memory was told in these sessions of the actor. Throws Unavailable. */
export async function eraseEvents(
  memory: Memory,
  sessions: Iterable<string>,
  report: Report,
): Promise<void> {
  const { actor } = report
  for (const session of sessions) {
    for (const event of await patiently(() => memory.events(actor, session))) {
      await patiently(() => memory.deleteEvent(actor, session, event))
      report.events++
    }
  }
}

/** Delete all records of a place, until it has none. Throws Unavailable. */
export async function eraseRecords(memory: Memory, place: Place, report: Report): Promise<void> {
  let wasWhole = false
  for (;;) {
    const before = report.records
    let found = 0
    for await (const ids of pages(memory, place)) {
      found += ids.length
      if (ids.length > 0) report.records += await patiently(() => memory.deleteRecords(ids))
    }
    const deleted = report.records - before
    // A list may for a while show what was deleted before.
    if (!found || (!deleted && wasWhole)) return
    if (!deleted) throw new Unavailable(`${found} in ${place.path} were not deleted`)
    wasWhole = found === deleted
  }
}

/** Whether the memory has something of the actor. Throws Unavailable. */
export async function hasAny(
  memory: Memory,
  sessions: Iterable<string>,
  places: Iterable<Place>,
  actor: string,
): Promise<boolean> {
  for (const session of sessions) {
    if ((await patiently(() => memory.events(actor, session))).length > 0) return true
  }
  for (const place of places) {
    for await (const ids of pages(memory, place)) if (ids.length > 0) return true
  }
  return false
}

/** The ids of the records of a place, some at a time: there may be more than fit in memory. */
async function* pages(memory: Memory, place: Place): AsyncGenerator<string[]> {
  let [ids, token] = await patiently(() => memory.records(place))
  yield ids
  while (token) {
    const from = token
    ;[ids, token] = await patiently(() => memory.records(place, from))
    yield ids
  }
}
