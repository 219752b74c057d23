// The rows of a memory in a file of this machine, and the words by which they are found.

import { z } from 'zod'

const LITTLE =
  'a an and are be did do does for how i in is it my of on or the to was what who you your'
const COMMON = new Set(LITTLE.split(' '))
const TEXT = z.string()
const Event = z.strictObject({
  event: TEXT,
  token: TEXT,
  actor: TEXT,
  session: TEXT,
  at: TEXT,
  items: z.unknown(),
})
const Record = z.strictObject({ record: TEXT, namespace: TEXT, text: TEXT, at: TEXT })
const Row = z.union([Record, Event])

/** What was said in a turn. */
export type EventRow = z.infer<typeof Event>
/** What is remembered of it. */
export type RecordRow = z.infer<typeof Record>

/** The row in a line; null when it is none. */
export function parse(line: string): EventRow | RecordRow | null {
  try {
    return Row.parse(JSON.parse(line))
  } catch {
    return null
  }
}

/** Rows as lines. */
export function textOf(rows: readonly object[]): string {
  return rows.map((row) => `${JSON.stringify(row)}\n`).join('')
}

/** The words of a text that tell it from others, without the s of a plural. */
export function wordsOf(text: string): Set<string> {
  const folded = text.toUpperCase().toLowerCase() // ß is ss
  const found = (folded.match(/[\p{L}\p{N}_]+/gu) ?? []).filter((word) => !COMMON.has(word))
  return new Set(found.map((word) => (/^.{2,}[^s]s$/u.test(word) ? word.slice(0, -1) : word)))
}
