// Erase all data of this project from its stores and memories.

const BATCH = 100 // items per deletion
const CONCURRENCY = 8
const MAX_LISTS = 5 // until the list is empty: a running agent may add items
const UNCOUNTED = 'cannot be counted'
const AGAIN = 'stop the agent, and run this again'
export const REMAINS =
  'These remain: the servers, buckets and memory resources, their backups and logs, and copies ' +
  'of sessions in other places.'
export const RUNNING =
  'Stop the agent first: a running agent can store new data during the erasure.'

type ErrorClass = new (...values: never[]) => Error

/** Data of this project in one place, as items with unique names. */
export interface Stock {
  /** A plural, such as "sessions". */
  readonly what: string
  /** The server or service, without secrets. */
  readonly where: string
  /** Why this command does not erase the items; '' if it does. */
  readonly staysBecause?: string
  /** About the time after the erasure. */
  readonly note?: string
  /** Errors of `pages` and `delete`, safe to print. */
  readonly failures?: readonly ErrorClass[]
  /** Yield the names of all items. */
  pages(): AsyncIterable<string[]>
  /** Delete items, and return their number. */
  delete(names: string[]): Promise<number>
}

/** A capability that keeps data outside the process. */
export interface Keeper {
  /**
   * Return all data of this project, without network calls.
   *
   * `unshared` are the collections whose memory no other project uses.
   */
  projectStocks(unshared: readonly string[]): Stock[] | Promise<Stock[]>
  /** Disconnect. */
  close?(): Promise<void> | void
}

/** Run `work` for each name, some at a time; return the number of names. */
export async function forEach(
  names: readonly string[],
  work: (name: string) => Promise<unknown>,
): Promise<number> {
  const waiting = [...names]
  const run = async () => {
    for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) await work(name)
  }
  const results = await Promise.allSettled(Array.from({ length: CONCURRENCY }, run))
  for (const result of results) if (result.status === 'rejected') throw result.reason
  return names.length
}

/** Return a stock without items, to show that nothing is stored there. */
export function nothing(what: string, where: string): Stock {
  return {
    what,
    where,
    async *pages() {},
    delete: async () => 0,
  }
}

/** A stock, the number of its items, and the last failure. */
interface Place {
  readonly stock: Stock
  found: number
  erased: number
  failure: string
}

/** Counts and erases all stocks of a project. */
export class ProjectErasure {
  readonly #places: Place[]

  constructor(stocks: readonly Stock[]) {
    this.#places = stocks.map((stock) => ({ stock, found: 0, erased: 0, failure: '' }))
  }

  /** Whether there is nothing to erase, as far as the stores can tell. */
  get isEmpty(): boolean {
    return !this.#places.some((place) => isErased(place) && (place.found > 0 || place.failure))
  }

  /** Whether data remains. */
  get hasRemains(): boolean {
    return this.#places.some((place) => place.failure || stays(place))
  }

  /** Count all items, and return lines about them. */
  async count(): Promise<string[]> {
    for (const place of this.#places) place.found = await count(place)
    const lines = this.#places.filter(isErased).map((place) => `  ${describeFound(place)}`)
    return [...lines, ...this.#staying()]
  }

  /** Erase all items, and return lines about the erased and the remaining data. */
  async erase(): Promise<string[]> {
    for (const place of this.#places.filter(isErased)) await erase(place)
    // A running agent may have stored new items since.
    for (const place of this.#places) {
      place.found = await count(place)
      if (place.found === 0 || !isErased(place)) continue
      place.failure = `${place.found} remain: ${place.failure || AGAIN}`
    }
    const done = this.#places.filter(({ erased }) => erased > 0)
    const failed = this.#places.filter(({ failure }) => failure)
    const notes = done.flatMap(({ stock }) => (stock.note ? [`note: ${stock.note}`] : []))
    return [
      ...done.map(({ stock, erased }) => `${erased} ${nameOf(stock)} erased`),
      ...failed.map(({ stock, failure }) => `failed: ${nameOf(stock)}: ${failure}`),
      ...this.#staying(),
      ...new Set(notes),
    ]
  }

  #staying(): string[] {
    return this.#places
      .filter(stays)
      .map(({ stock }) => `not erased: ${nameOf(stock)}: ${stock.staysBecause}`)
  }
}

/** Return the number of items; 1 if any stay. Keeps an earlier failure. */
async function count(place: Place): Promise<number> {
  let found = 0
  try {
    for await (const page of place.stock.pages()) {
      found += page.length
      if (found > 0 && place.stock.staysBecause) return 1
    }
  } catch (error) {
    place.failure ||= messageOf(place, error)
    return 0
  }
  return found
}

async function erase(place: Place): Promise<void> {
  place.failure = ''
  try {
    for (let lists = 0; lists < MAX_LISTS; lists++) {
      const names: string[] = []
      for await (const page of place.stock.pages()) names.push(...page)
      for (let at = 0; at < names.length; at += BATCH) {
        place.erased += await place.stock.delete(names.slice(at, at + BATCH))
      }
      if (names.length === 0) return
    }
  } catch (error) {
    place.failure = messageOf(place, error)
  }
}

/** Return the message of a failure. Throws all other errors. */
function messageOf({ stock }: Place, error: unknown): string {
  const isFailure = stock.failures?.some((kind) => error instanceof kind)
  if (!isFailure) throw error
  return (error as Error).message
}

/** Return the items and their place, for messages. */
function nameOf({ what, where }: Stock): string {
  return `${what} in ${where}`
}

function describeFound({ stock, found, failure }: Place): string {
  if (failure) return `${nameOf(stock)}, which ${UNCOUNTED}: ${failure}`
  return `${found} ${nameOf(stock)}`
}

function isErased({ stock }: Place): boolean {
  return !stock.staysBecause
}

function stays({ stock, found }: Place): boolean {
  return Boolean(stock.staysBecause) && found > 0
}
