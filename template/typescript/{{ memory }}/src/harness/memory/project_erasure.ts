// Find the data of this project in its memories, and no data of other projects.
//
// A memory may be shared by several projects. Only a record's path can name its project: events,
// and records in namespaces without {projectId}, may belong to any of them.

import { CannotList, forEach, type Stock, unerasable } from '../collections/erasure.ts'
import { locateFailure, type Memory, type MemoryCollection, MemoryUnavailable } from './base.ts'
import { LocalMemory } from './local.ts'
import { ROOT, segmentsOf } from './namespaces.ts'
import type { MemoryPolicy } from './policy.ts'

const PLACEHOLDER = /\{\w+\}/
const PROJECT = '{projectId}'
const SHARED = 'other projects may use this memory. If none does, add --unshared'
const READ_ONLY = 'the collection is read-only here'
const NO_ERASE = "erase the project's data there yourself"
const UNSET = 'PROJECT_ID is not set, and its namespaces need it'

/**
 * The owner of a record, by its path. A later value forbids more.
 *
 * `any`: the path does not name the project. `unknown`: no template matches the path. `unclear`: by
 * some templates another project, by others not.
 */
const OWNERS = ['this', 'any', 'unknown', 'unclear', 'other'] as const
export type Owner = (typeof OWNERS)[number]

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
  const projects = new Set<string | null>()
  let isExact = false
  let isWildcard = false
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
      isExact ||= below === undefined
      isWildcard ||= template.endsWith('/*')
    }
  }
  if ([...projects].some((project) => project !== projectId)) {
    return isExact || projects.has(projectId) ? 'unclear' : 'other'
  }
  if (projects.size > 0 && !isExact && !isWildcard) return 'this'
  return projects.size > 0 || isBelow ? 'any' : 'unknown'
}

/**
 * Return the project's records and events in the memory of a collection.
 *
 * `isUnshared`: no other project uses the memory. `beside`: the templates of other collections in
 * the same memory.
 */
export function stocksOf(
  collection: MemoryCollection,
  projectId: string | null,
  isUnshared: boolean,
  beside: readonly string[],
): Stock[] {
  const { id, memory, isErasable, needsProject } = collection
  if (memory instanceof LocalMemory) return [] // in localStocks
  const contents = new Contents(id, memory, isErasable ? '' : READ_ONLY)
  const shared = isUnshared ? '' : `${SHARED} ${id}`
  const parts: [owner: Owner, whose: string, reason: string][] = [
    ['any', ' in namespaces without a project', shared],
    ['unknown', ' in namespaces that its file does not name', shared],
    ['unclear', ' in namespaces that may name another project', NO_ERASE],
  ]
  const project = projectId ? `project ${projectId}` : 'this project'
  if (needsProject || projectId) parts.push(['this', ` of ${project}`, ''])
  const stocks = parts.map(([owner, whose, reason]) => {
    const ids = () => recordsOf(owner, collection, projectId, beside)
    return contents.records(ids, whose, reason)
  })
  return [contents.events(shared), ...stocks]
}

/** Return all contents of the local files, which agents of this folder wrote. */
export function localStocks(): Stock[] {
  return LocalMemory.ids().flatMap((id) => {
    const memory = new LocalMemory(id, [])
    const contents = new Contents(id, memory)
    return [contents.events(), contents.records(() => memory.records(ROOT))]
  })
}

/** Return the owner's writable stores: their interface cannot erase a project. */
export function ownStoreStocks(policy: MemoryPolicy, projectId: string | null): Stock[] {
  let names: string[]
  try {
    const stores = policy.ownStores({ actor: 'erase-project', sessionId: '', projectId })
    names = stores.filter(({ writable }) => writable).map(({ name }) => name)
  } catch (error) {
    names = [`unknown: ${locateFailure(error)}`]
  }
  return names.map((name) => unerasable('data', `store ${name} of own_memory`, NO_ERASE))
}

/** The records and events in a memory, and why they stay. */
class Contents {
  readonly #memory: Memory
  /** Records that later lists may still contain. */
  readonly #deleted = new Set<string>()
  readonly #reason: string
  readonly #what: string

  constructor(collectionId: string, memory: Memory, reason = '') {
    this.#memory = memory
    this.#reason = reason
    this.#what = `of collection ${collectionId}`
  }

  events(reason = ''): Stock {
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

  records(ids: () => AsyncIterable<string[]>, whose = '', reason = ''): Stock {
    const [deleted, memory] = [this.#deleted, this.#memory]
    return {
      ...this.#stock(`records ${this.#what}${whose}`, reason),
      saysProject: whose !== '',
      async *pages() {
        for await (const page of ids()) yield page.filter((id) => !deleted.has(id))
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
}

/** Yield the ids of the records of an owner, page by page. */
async function* recordsOf(
  owner: Owner,
  collection: MemoryCollection,
  projectId: string | null,
  beside: readonly string[],
): AsyncGenerator<string[]> {
  const templates = await collection.memory.templates(collection)
  const isNamed = templates.some((template) => template.includes(PROJECT))
  if (owner === 'this' && isNamed && !projectId) throw new CannotList(UNSET)

  const find = (path: string): Owner => {
    const found = ownerOf(path, templates, projectId)
    const isBeside = ownerOf(path, beside, projectId) !== 'unknown'
    return found === 'unknown' && isBeside ? 'other' : found
  }
  const strictest = (paths: readonly string[]) => {
    const owners = new Set(paths.map(find))
    const isCommon = owners.has('this') && owners.has('other')
    return isCommon ? 'unclear' : OWNERS.findLast((it) => owners.has(it))
  }
  for await (const entries of collection.memory.entries(ROOT)) {
    yield entries.filter(([, paths]) => strictest(paths) === owner).map(([id]) => id)
  }
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
