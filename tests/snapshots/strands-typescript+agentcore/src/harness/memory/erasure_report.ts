// What an erasure reports.

/** Turns that an erasure cannot reach. */
export const LATER =
  'turns that run or wait to be recorded now are recorded after this: run this again then'

const COUNTED = ['sessions', 'events', 'records'] as const
type Counts = Record<(typeof COUNTED)[number], number>

/** What was erased in one place; `where` is a collection, or the session store. */
export interface Place extends Counts {
  readonly where: string
  readonly contact: string
}

/** What was erased of an actor, what could not be, and what else there is to know. */
export interface Report extends Counts {
  readonly actor: string
  readonly agent: string
  readonly at: string
  readonly places: Place[]
  readonly could_not: string[]
  notes: string[]
}

/** Add a place to a report, and return it. */
export function addPlace({ places }: Report, where: string, contact: string): Place {
  const place = { where, contact, sessions: 0, events: 0, records: 0 }
  places.push(place)
  return place
}

/** Return the report as lines of text. */
export function linesOf(report: Report): string[] {
  const counts = COUNTED.map((name) => `${name} erased: ${report[name]}`)
  for (const place of report.places) {
    for (const name of COUNTED.filter((one) => place[one] > 0)) {
      counts.push(`in ${place.where}, ${place.contact}: ${place[name]} ${name}`)
    }
  }
  const failures = report.could_not.map((what) => `failed: ${what}`)
  return [...counts, ...failures, ...report.notes.map((what) => `note: ${what}`)]
}
