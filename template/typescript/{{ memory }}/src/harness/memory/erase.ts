// Erases one actor's data from the memories, and nothing that may belong to another.

import { describe } from '../log.ts'
import { type Memory, type MemoryCollection, MemoryUnavailable } from './base.ts'
import { addPlace, type Place, type Report } from './erasure_report.ts'
import { LocalMemory } from './local.ts'
import type { LongTermMemory } from './long_term.ts'
import { Namespace, resolve, segmentsOf, type Who } from './namespaces.ts'
import { policyOf } from './policy.ts'

const PLACEHOLDER = /\{(\w+)\}/
const RENAMED = 'its file does not name this namespace: add it, and run this again'
const READ_ONLY = 'was not looked at: turns are not recorded there'
const NO_ERASE = 'it has no erase(actor): erase there what it keeps of the actor'
const MAX_LISTS = 10 // how often one list is read from its start without a deletion

/** Erases an actor from all memories of an agent, as far as each of them allows. */
export class Erasure {
  readonly report: Report
  readonly #longTerm: LongTermMemory
  readonly #identity: Who
  readonly #memories: [MemoryCollection, Memory, sessions: string[]][] = []

  constructor(longTerm: LongTermMemory, actor: string) {
    const { collections, declarations, settings } = longTerm
    const at = `${new Date().toISOString().slice(0, -5)}+00:00`
    const head = { actor, agent: declarations.project.agentId, at }
    const counts = { sessions: 0, events: 0, records: 0 }
    this.report = { ...head, ...counts, places: [], could_not: [], notes: [] }
    this.#longTerm = longTerm
    this.#identity = { actor, sessionId: '', projectId: settings.projectId }
    for (const collection of collections) {
      const { id, memory } = collection
      const local = new LocalMemory(id, [])
      this.#memories.push([collection, memory, []])
      if (memory instanceof LocalMemory) {
        this.report.notes.push(`collection ${id} was searched in ${memory.contact}`)
      } else if (local.exists) {
        this.#memories.push([collection, local, []]) // from trials without the service
      }
    }
  }

  /** Erase sessions, events and records, and return the report. */
  async erase(): Promise<Report> {
    for (const one of this.#memories) {
      await this.#attempt(`events of collection ${one[0].id}`, async () => {
        one[2] = await one[1].sessions(this.report.actor)
      })
    }
    const known = new Set(this.#memories.flatMap(([, , sessions]) => sessions))
    await this.#longTerm.eraseSessions(this.report, [...known].toSorted())
    for (const [collection, memory, sessions] of this.#memories) {
      await this.#eraseMemory(collection, memory, sessions)
    }
    await this.#eraseOwnStores()
    this.report.notes = [...new Set(this.report.notes)]
    return this.report
  }

  async #eraseMemory(
    collection: MemoryCollection,
    memory: Memory,
    sessions: string[],
  ): Promise<void> {
    const [report, where] = [this.report, `of collection ${collection.id}`]
    const { actor } = this.#identity
    const templates = await this.#templates(collection, memory)
    const scope = erasureScope(templates, this.#identity, sessions)
    report.could_not.push(...scope.missing.map((what) => `${what} (${where})`))
    report.notes.push(...scope.shared.map((what) => `${what} (${where})`))
    await this.#attempt(`records ${where} in namespaces that its file does not name`, async () => {
      for (const path of (await memory.paths(actor)).toSorted()) {
        if (!isStray(path, scope.namespaces, templates, actor)) continue
        report.could_not.push(`records in ${path} ${where}: ${RENAMED}`)
      }
    })
    if (!collection.isErasable) {
      await this.#attempt(`events ${where}`, async () => {
        if (!(await this.#hasAny(memory, sessions, scope.namespaces))) return
        report.could_not.push(`events and records ${where}: it is read-only here`)
      })
      return
    }
    const place = addPlace(report, `collection ${collection.id}`, memory.contact)
    await this.#attempt(`events ${where}`, async () => {
      for (const session of sessions) await this.#eraseEvents(memory, session, place)
    })
    await this.#attempt(`records ${where}`, async () => {
      for (const namespace of scope.namespaces) await this.#eraseRecords(memory, namespace, place)
    })
  }

  async #eraseEvents(memory: Memory, session: string, place: Place): Promise<void> {
    const { actor } = this.report
    await eraseAll(
      () => memory.events(actor, session),
      async (ids) => {
        for (const id of ids) {
          await memory.deleteEvent(actor, session, id)
          this.report.events++
          place.events++
        }
        this.#note(memory)
        return ids
      },
    )
  }

  async #eraseRecords(memory: Memory, namespace: Namespace, place: Place): Promise<void> {
    await eraseAll(
      () => memory.records(namespace),
      async (ids) => {
        const deleted = await memory.deleteRecords(ids)
        this.report.records += deleted.length
        place.records += deleted.length
        this.#note(memory)
        return deleted
      },
    )
  }

  /** Erase from the owner's stores, as far as they can: no protocol of theirs says how. */
  async #eraseOwnStores(): Promise<void> {
    const { could_not: failures, notes, actor } = this.report
    try {
      const policy = await policyOf(this.#longTerm.load)
      for (const store of policy.ownStores(this.#identity)) {
        const where = `store ${store.name}`
        try {
          if (store.erase) {
            await store.erase(actor)
            addPlace(this.report, where, 'own_memory')
          } else if (store.writable) failures.push(`${where}: ${NO_ERASE}`)
          else notes.push(`${where} ${READ_ONLY}`)
        } catch (error) {
          failures.push(`${where}: ${describe(error)}`)
        }
      }
    } catch (error) {
      failures.push(`the stores of own_memory: ${describe(error)}`)
    }
  }

  #note({ afterErasure }: Memory): void {
    if (afterErasure) this.report.notes.push(afterErasure)
  }

  async #templates(collection: MemoryCollection, memory: Memory): Promise<string[]> {
    let templates = Object.keys(collection.namespaces ?? {})
    await this.#attempt(
      `records of collection ${collection.id} in all its namespaces`,
      async () => {
        templates = await memory.templates(collection)
      },
    )
    return templates
  }

  async #hasAny(memory: Memory, sessions: string[], namespaces: Namespace[]): Promise<boolean> {
    const lists = sessions.map((session) => memory.events(this.report.actor, session))
    lists.push(...namespaces.map((namespace) => memory.records(namespace)))
    for (const pages of lists) {
      for await (const page of pages) if (page.length > 0) return true
    }
    return false
  }

  async #attempt(what: string, work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      if (!(error instanceof MemoryUnavailable)) throw error
      this.report.could_not.push(`${what}: ${error.message}`)
    }
  }
}

/**
 * Delete each page of a list, and list again from the start, until nothing is left.
 *
 * `remove` returns what was deleted. Throws MemoryUnavailable.
 */
async function eraseAll(
  listPages: () => AsyncIterable<string[]>,
  remove: (ids: string[]) => Promise<string[]>,
): Promise<void> {
  const deleted = new Set<string>() // for a while, a list may still show it
  let [lists, left] = [0, 0]
  while (lists < MAX_LISTS) {
    const before = deleted.size
    left = 0
    try {
      for await (const page of listPages()) {
        const ids = page.filter((id) => !deleted.has(id))
        if (ids.length === 0) continue
        for (const id of await remove(ids)) deleted.add(id)
        left += ids.length
      }
      if (left === 0) return
    } catch (error) {
      // The token of the next page may have died with its rows.
      if (!(error instanceof MemoryUnavailable) || deleted.size === before) throw error
    }
    lists = deleted.size === before ? lists + 1 : 0
  }
  throw new MemoryUnavailable(`${left} were not deleted`)
}

/** The namespaces of one actor alone, and in words what else there is. */
interface Scope {
  readonly namespaces: Namespace[]
  /** What to set, to find more. */
  readonly missing: string[]
  /** What cannot be told apart. */
  readonly shared: string[]
}

/** Return what lies below the {actorId} of each template; `sessions` are this actor's. */
export function erasureScope(
  given: Iterable<string>,
  identity: Who,
  sessions: readonly string[],
): Scope {
  const [missing, shared]: [string[], string[]] = [[], []]
  const namespaces = new Map<string, Namespace>()
  const templates = identity.actor.includes('/') ? [] : [...new Set(given)]
  if (identity.actor.includes('/')) shared.push('no records are made for an actor id with a /')
  for (const template of templates) {
    const part = actorsPart(template)
    if (!part) {
      shared.push(`records in ${template} are shared by all users`)
      continue
    }
    if (part.includes('{projectId}') && !identity.projectId) {
      missing.push(`records in ${template}: PROJECT_ID is not set`)
      continue
    }
    if (part.includes('{projectId}')) {
      shared.push(`only records of project ${identity.projectId} are erased in ${template}`)
    }
    if (part.includes('{sessionId}')) {
      shared.push(`only records of the listed sessions are erased in ${template}`)
    }
    for (const sessionId of part.includes('{sessionId}') ? sessions : ['']) {
      let namespace: Namespace
      try {
        namespace = resolve(part, { ...identity, sessionId })
      } catch (error) {
        if (!(error instanceof RangeError)) throw error
        shared.push(`records in ${error.message}`)
        break
      }
      if (templates.some((one) => mayBeOfOthers(namespace, one, identity.actor))) {
        shared.push(`records in ${namespace.path} may be of others too`)
      } else {
        namespaces.set(namespace.path, namespace)
      }
    }
  }
  return { namespaces: [...namespaces.values()], missing, shared }
}

/** Whether no template says whose the records at a path are, which names the actor. */
function isStray(
  path: string,
  namespaces: readonly Namespace[],
  templates: readonly string[],
  actor: string,
): boolean {
  if (namespaces.some((namespace) => namespace.holds(path))) return false
  const place = new Namespace(path, false)
  return !templates.some((template) => mayBeOfOthers(place, template, actor))
}

/** Return the template up to its segment with {actorId}, and all below; or ''. */
function actorsPart(template: string): string {
  const segments = segmentsOf(template)
  const end = segments.findIndex((one) => one.includes('{actorId}')) + 1
  return end ? ['', ...segments.slice(0, end), '*'].join('/') : ''
}

/** Whether a template, filled in for another actor, can lie in the namespace. */
function mayBeOfOthers(namespace: Namespace, template: string, actor: string): boolean {
  const own = segmentsOf(namespace.path)
  let pattern = ''
  const above = segmentsOf(template).slice(0, own.length).join('/')
  for (const [at, part] of above.split(PLACEHOLDER).entries()) {
    if (at % 2 === 0) pattern += part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
    else if (part !== 'actorId') pattern += '[^/]+'
    else pattern += pattern.includes('<actor>') ? '\\k<actor>' : '(?<actor>[^/]+)'
  }
  const found = new RegExp(`^${pattern}$`).exec(own.join('/'))
  return found !== null && found.groups?.actor !== actor
}
