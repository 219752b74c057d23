// Erase all data of this project from its stores and memories.

const BATCH = 100 // items per deletion
const CONCURRENCY = 8
const MAX_USELESS = 2 // batches in a row that fail without a deletion: the place is down
const MAX_LISTS = 5 // until the list is empty: a running agent may add items
const UNCOUNTED = 'cannot be counted'
const AGAIN = 'stop the agent, and run this again'
const ALL_PROJECTS = 'of every PROJECT_ID'
const UNREAD = 'and run this again: nothing there was looked at'
export const REMAINS =
  'These remain: the servers, buckets and memory resources, their backups and logs, copies of ' +
  'sessions in other places, and the prompts in the history of `chat` in ~/.local/state.'
export const RUNNING =
  'Stop the agent first: a running agent can store new data during the erasure.'

type ErrorClass = new (...values: never[]) => Error

/** The items cannot be listed, in a second run neither. The message is safe to print. */
export class CannotList extends Error {}

/** Only `done` items were deleted; `reason` is the first error. */
export class Incomplete extends Error {
  readonly done: number
  readonly reason: unknown

  constructor(done: number, reason: unknown) {
    super(String(reason))
    this.done = done
    this.reason = reason
  }
}

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
  /** Whether `what` says whose items these are. */
  readonly saysProject?: boolean
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

/**
 * Run `work` for each name, some at a time; return the number of names.
 *
 * Throws Incomplete after all names, if some failed.
 */
export async function forEach(
  names: readonly string[],
  work: (name: string) => Promise<unknown>,
): Promise<number> {
  const waiting = [...names]
  const errors: unknown[] = []
  const run = async () => {
    for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
      try {
        await work(name)
      } catch (error) {
        errors.push(error)
      }
    }
  }
  await Promise.all(Array.from({ length: CONCURRENCY }, run))
  if (errors.length > 0) throw new Incomplete(names.length - errors.length, errors[0])
  return names.length
}

/** Return the stock of a place that cannot be reached until a variable is set. */
export function unread(what: string, where: string, variable: string): Stock {
  return {
    what,
    where,
    saysProject: true,
    // oxlint-disable-next-line require-yield
    async *pages() {
      throw new CannotList(`set ${variable}, ${UNREAD}`)
    },
    delete: async () => 0,
  }
}

/** Return the stock of a place that this command cannot look at. */
export function unerasable(what: string, where: string, staysBecause: string): Stock {
  return {
    what,
    where,
    staysBecause,
    saysProject: true,
    async *pages() {
      yield ['all']
    },
    delete: async () => 0,
  }
}

/** A stock, its name for messages, the number of its items, and the first failure. */
interface Place {
  readonly stock: Stock
  readonly name: string
  found: number
  erased: number
  failure: string
  /** Whether a second run may succeed. */
  isRetryable: boolean
}

/** Counts and erases all stocks of a project. */
export class ProjectErasure {
  readonly #places: Place[]

  constructor(stocks: readonly Stock[], projectId: string | null = null) {
    const empty = { found: 0, erased: 0, failure: '', isRetryable: false }
    this.#places = stocks.map((stock) => ({ ...empty, stock, name: nameOf(stock, projectId) }))
  }

  /** Whether there is nothing to erase, as far as the stores can tell. */
  get isEmpty(): boolean {
    return !this.#places.some((place) => isErased(place) && (place.found > 0 || place.failure))
  }

  /** Whether data remains. */
  get hasRemains(): boolean {
    return this.#places.some((place) => place.failure || stays(place))
  }

  /** Whether a second run may erase more. */
  get isRetryable(): boolean {
    return this.#places.some((place) => place.isRetryable)
  }

  /** Count all items, and return lines about them. */
  async count(): Promise<string[]> {
    for (const place of this.#places) place.found = await count(place)
    const shown = this.#places.filter((place) => place.failure || isErased(place))
    return [...shown.map((place) => `  ${describeFound(place)}`), ...this.#staying()]
  }

  /** Erase all items, and return lines about the erased and the remaining data. */
  async erase(): Promise<string[]> {
    for (const place of this.#places.filter(isErased)) await erase(place)
    // A running agent may have stored new items since.
    for (const place of this.#places) {
      place.found = await count(place)
      if (place.found === 0 || !isErased(place)) continue
      place.failure = `${place.found} left: ${place.failure || AGAIN}`
      place.isRetryable = true
    }
    const done = this.#places.filter(({ erased }) => erased > 0)
    const failed = this.#places.filter(({ failure }) => failure)
    const notes = done.flatMap(({ stock }) => (stock.note ? [`note: ${stock.note}`] : []))
    return [
      ...done.map(({ name, erased }) => `erased: ${name}: ${erased}`),
      ...failed.map(({ name, failure }) => `failed: ${name}: ${failure}`),
      ...this.#staying(),
      ...new Set(notes),
    ]
  }

  #staying(): string[] {
    return this.#places
      .filter(stays)
      .map(({ name, stock }) => `not erased: ${name}: ${stock.staysBecause}`)
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
    fail(place, error)
    return 0
  }
  return found
}

async function erase(place: Place): Promise<void> {
  Object.assign(place, { failure: '', isRetryable: false })
  try {
    for (let lists = 0; lists < MAX_LISTS; lists++) {
      const names: string[] = []
      for await (const page of place.stock.pages()) names.push(...page)
      await deleteAll(place, names)
      if (place.failure || names.length === 0) return
    }
  } catch (error) {
    fail(place, error)
  }
}

/** Delete items in batches. A failed batch does not keep the later ones. */
async function deleteAll(place: Place, names: string[]): Promise<void> {
  let useless = 0
  for (let at = 0; at < names.length && useless < MAX_USELESS; at += BATCH) {
    try {
      place.erased += await place.stock.delete(names.slice(at, at + BATCH))
      useless = 0
    } catch (error) {
      const [done, reason] = error instanceof Incomplete ? [error.done, error.reason] : [0, error]
      fail(place, reason)
      place.erased += done
      useless = done > 0 ? 0 : useless + 1
    }
  }
}

/** Keep the first failure. Throws all other errors. */
function fail(place: Place, error: unknown): void {
  const kinds: readonly ErrorClass[] = [CannotList, ...(place.stock.failures ?? [])]
  if (!kinds.some((kind) => error instanceof kind)) throw error
  place.failure ||= (error as Error).message
  place.isRetryable ||= !(error instanceof CannotList)
}

/** Return the items and their place, and whether they belong to all projects of the agent. */
function nameOf({ what, where, saysProject }: Stock, projectId: string | null): string {
  const isTold = saysProject || !projectId
  return `${what} ${isTold ? '' : `${ALL_PROJECTS} `}in ${where}`
}

function describeFound({ name, found, failure }: Place): string {
  return failure ? `${name}: ${UNCOUNTED}: ${failure}` : `${name}: ${found}`
}

function isErased({ stock }: Place): boolean {
  return !stock.staysBecause
}

function stays({ stock, found }: Place): boolean {
  return Boolean(stock.staysBecause) && found > 0
}
