// The report of `forget`.

/** The note about turns that are not erased. */
export const LATER =
  'running turns and turns in the queue are recorded later: run this again after they finish'

const COUNTERS = ['sessions', 'events', 'records'] as const
type Counts = Record<(typeof COUNTERS)[number], number>

/** The counts of erased data in one place; `where` is a collection or store. */
export interface Place extends Counts {
  readonly where: string
  readonly contact: string
}

/** The erased data of an actor: totals, counts by place, failures and notes. */
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
  const counts = COUNTERS.map((name) => `${name} erased: ${report[name]}`)
  for (const place of report.places) {
    for (const name of COUNTERS.filter((counter) => place[counter] > 0)) {
      counts.push(`in ${place.where}, ${place.contact}: ${place[name]} ${name}`)
    }
  }
  const failures = report.could_not.map((failure) => `failed: ${failure}`)
  return [...counts, ...failures, ...report.notes.map((note) => `note: ${note}`)]
}
