// Find the data of this project in its memories, and no data of other projects.
//
// A memory may be shared by several projects. Only a record's path can name its project: events,
// and records in namespaces without {projectId}, may belong to any of them.

import { CannotList, forEach, type Stock } from '../collections/erasure.ts'
import { describe } from '../log.ts'
import { type Memory, type MemoryCollection, MemoryUnavailable } from './base.ts'
import { LocalMemory } from './local.ts'
import { Namespace, segmentsOf } from './namespaces.ts'
import type { MemoryPolicy } from './policy.ts'

const PLACEHOLDER = /\{\w+\}/
const PROJECT = '{projectId}'
const ROOT = new Namespace('/', true)
const SHARED = 'other projects may use this memory. If none does, add --unshared'
const READ_ONLY = 'the collection is read-only here'
const NO_ERASE = "erase the project's data there yourself"
const UNSET = 'PROJECT_ID is not set, and its namespaces need it'

/** The owner of a record, by its path; `any`: the path does not name the project. */
export type Owner = 'this' | 'any' | 'other'

/**
 * Return the owner of the records at a path.
 *
 * A path names a project if a template has {projectId} as a whole segment there, and if no template
 * without a project can resolve to exactly this path.
 */
export function ownerOf(
  path: string,
  templates: readonly string[],
  projectId: string | null,
): Owner {
  const projects = new Set<string>()
  let isExact = false
  let isBelow = false
  for (const template of templates) {
    const pattern = `^${patternOf(partOf(template))}(?<below>/.*)?$`
    const match = new RegExp(pattern, 's').exec(segmentsOf(path).join('/'))
    if (match === null) continue
    const { project, below } = match.groups ?? {}
    if (project !== undefined) {
      projects.add(project)
    } else {
      isBelow = true
      isExact ||= below === undefined || template.endsWith('/*')
    }
  }
  if ([...projects].some((project) => project !== projectId)) return 'other'
  if (projects.size > 0 && !isExact) return 'this'
  return projects.size > 0 || isBelow ? 'any' : 'other'
}

/**
 * Return the project's records and events in the memory of a collection.
 *
 * `isUnshared`: no other project uses the memory.
 */
export function stocksOf(
  collection: MemoryCollection,
  projectId: string | null,
  isUnshared: boolean,
): Stock[] {
  const { memory } = collection
  const local = new LocalMemory(collection.id, []) // of a trial without the service
  const trial = new Contents(collection, local, projectId).allStocks()
  if (memory instanceof LocalMemory) return trial
  const stocks = new Contents(collection, memory, projectId).stocks(isUnshared)
  return local.exists ? [...stocks, ...trial] : stocks
}

/** Return the owner's writable stores: their interface cannot erase a project. */
export function ownStoreStocks(policy: MemoryPolicy, projectId: string | null): Stock[] {
  let names: string[]
  try {
    const stores = policy.ownStores({ actor: 'erase-project', sessionId: '', projectId })
    names = stores.filter(({ writable }) => writable).map(({ name }) => name)
  } catch (error) {
    names = [`unknown: ${describe(error)}`]
  }
  return names.map((name) => ({
    what: 'data',
    where: `store ${name} of own_memory`,
    staysBecause: NO_ERASE,
    saysProject: true,
    async *pages() {
      yield ['all']
    },
    delete: async () => 0,
  }))
}

/** The records and events in the memory of a collection. */
class Contents {
  readonly #collection: MemoryCollection
  readonly #memory: Memory
  readonly #projectId: string | null
  /** Records that later lists may still contain. */
  readonly #deleted = new Set<string>()
  readonly #reason: string
  readonly #what: string

  constructor(collection: MemoryCollection, memory: Memory, projectId: string | null) {
    this.#collection = collection
    this.#memory = memory
    this.#projectId = projectId
    this.#reason = collection.isErasable ? '' : READ_ONLY
    this.#what = `of collection ${collection.id}`
  }

  /** Return all contents, for a file: its events name no project. */
  allStocks(): Stock[] {
    return [this.#events(''), this.#records(`records ${this.#what}`, null, '')]
  }

  /** Return the contents by owner. */
  stocks(isUnshared: boolean): Stock[] {
    const reason = isUnshared ? '' : `${SHARED} ${this.#collection.id}`
    const what = `records ${this.#what} in namespaces without a project`
    const stocks = [this.#events(reason), this.#records(what, 'any', reason)]
    if (this.#collection.needsProject || this.#projectId) {
      const own = `records ${this.#what} of project ${this.#projectId ?? 'None'}`
      stocks.push(this.#records(own, 'this', ''))
    }
    return stocks
  }

  #events(reason: string): Stock {
    const memory = this.#memory
    const deleteEvent = async (name: string) => {
      const [event = '', session = '', ...actor] = name.split(' ')
      await memory.deleteEvent(actor.join(' '), session, event)
    }
    return {
      ...this.#stock(`events ${this.#what}`, reason),
      async *pages() {
        for (const actor of await memory.actors()) {
          for (const session of await memory.sessions(actor)) {
            for await (const page of memory.events(actor, session)) {
              yield page.map((event) => `${event} ${session} ${actor}`)
            }
          }
        }
      },
      delete: (names) => forEach(names, deleteEvent),
    }
  }

  /** Return the records of an owner; null: of all. */
  #records(what: string, owner: Owner | null, reason: string): Stock {
    const [deleted, memory] = [this.#deleted, this.#memory]
    const pages = () => this.#pages(owner)
    return {
      ...this.#stock(what, reason),
      saysProject: owner !== null,
      async *pages() {
        for await (const page of pages()) yield page.filter((id) => !deleted.has(id))
      },
      async delete(ids) {
        const gone = await memory.deleteRecords(ids)
        for (const id of gone) deleted.add(id)
        return gone.length
      },
    }
  }

  #stock(what: string, reason: string) {
    return {
      what,
      where: this.#memory.contact,
      staysBecause: this.#reason || reason,
      note: this.#memory.afterErasure,
      failures: [MemoryUnavailable],
    }
  }

  async *#pages(owner: Owner | null): AsyncGenerator<string[]> {
    if (owner === null) return yield* this.#memory.records(ROOT)
    const templates = await this.#memory.templates(this.#collection)
    const isNamed = templates.some((template) => template.includes(PROJECT))
    if (owner === 'this' && isNamed && !this.#projectId) throw new CannotList(UNSET)
    for (const folder of foldersOf(templates)) {
      for await (const entries of this.#memory.entries(folder)) {
        yield entries
          .filter(([, path]) => ownerOf(path, templates, this.#projectId) === owner)
          .map(([id]) => id)
      }
    }
  }
}

/** Return the folders in front of the first placeholders, without folders of others. */
function foldersOf(templates: readonly string[]): Namespace[] {
  const paths = templates.map((template) => {
    const [start = ''] = segmentsOf(template).join('/').split('{')
    return `/${start.slice(0, start.lastIndexOf('/') + 1)}`
  })
  const folders = [...new Set(paths)].toSorted().map((path) => new Namespace(path, true))
  return folders.filter((it) => !folders.some((other) => other !== it && other.holds(it.path)))
}

/** Return the segments up to {projectId}, or all if no segment has only this placeholder. */
function partOf(template: string): string[] {
  const segments = segmentsOf(template.replace(/\/\*$/, ''))
  const end = segments.findIndex(namesProject) + 1
  return end > 0 ? segments.slice(0, end) : segments
}

function namesProject(segment: string): boolean {
  // With two placeholders in a segment, the id could be a part of another project's id.
  return segment.includes(PROJECT) && segment.match(/\{\w+\}/g)?.length === 1
}

function patternOf(segments: readonly string[]): string {
  const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
  return segments
    .map((segment) => {
      const value = namesProject(segment) ? '(?<project>[^/]+)' : '[^/]+'
      return segment.split(PLACEHOLDER).map(escaped).join(value)
    })
    .join('/')
}
