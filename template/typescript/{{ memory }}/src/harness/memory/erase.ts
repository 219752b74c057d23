// Erase one actor's data from the memories, and no data that may belong to others.

import { locateFailure, type Memory, type MemoryCollection, MemoryUnavailable } from './base.ts'
import { addPlace, type Place, type Report } from './erasure_report.ts'
import { LocalMemory } from './local.ts'
import type { LongTermMemory } from './long_term.ts'
import { Namespace, normalised, resolve, ROOT, segmentsOf, STRATEGY } from './namespaces.ts'
import type { Who } from './namespaces.ts'
import { policyOf } from './policy.ts'

const PLACEHOLDER = /\{(\w+)\}/
const RENAMED = 'its file does not name this namespace: add it, and run this again'
const UNCLEAR = 'they may belong to another actor or project: erase them yourself'
const READ_ONLY = 'was not searched: it records no turns'
const NO_ERASE = "it has no erase(actor): erase the actor's data there yourself"
const MAX_LISTS = 10 // consecutive lists without a deletion
// Other placeholders, such as a tenant, could separate two actors with the same id.
const KNOWN = ['{actorId}', '{projectId}', '{sessionId}', STRATEGY]

/** Erases an actor from all memories of an agent. */
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
        this.#memories.push([collection, local, []]) // a file from a trial without the service
      }
    }
  }

  /** Erase sessions, events and records, and return the report. */
  async erase(): Promise<Report> {
    for (const entry of this.#memories) {
      await this.#attempt(`events of collection ${entry[0].id}`, async () => {
        entry[2] = await entry[1].sessions(this.report.actor)
      })
    }
    const candidates = new Set(this.#memories.flatMap(([, , sessions]) => sessions))
    await this.#longTerm.eraseSessions(this.report, [...candidates].toSorted())
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
    const report = this.report
    const where = `of collection ${collection.id}`
    const templates = await this.#templates(collection, memory)
    const scope = erasureScope(templates, this.#identity, sessions)
    report.could_not.push(...scope.missing.map((reason) => `${reason} (${where})`))
    report.notes.push(...scope.shared.map((reason) => `${reason} (${where})`))
    await this.#attempt(`records ${where} in namespaces that its file does not name`, async () => {
      for (const path of await this.#paths(memory)) {
        if (scope.namespaces.some((namespace) => namespace.holds(path))) continue
        const found = actorsPlace(path, templates, this.#identity)
        if (found instanceof Namespace) scope.namespaces.push(found)
        else if (found) report.could_not.push(`records in ${path} ${where}: ${found}`)
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

  /** Return the sorted paths of records that contain the actor's id. */
  async #paths(memory: Memory): Promise<string[]> {
    const found = new Set<string>()
    for await (const entries of memory.entries(ROOT)) {
      const paths = entries.flatMap(([, places]) => places.map(normalised))
      for (const path of paths.filter((path) => path.includes(this.report.actor))) found.add(path)
    }
    return [...found].toSorted()
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
        this.#addNote(memory)
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
        this.#addNote(memory)
        return deleted
      },
    )
  }

  /** Erase from the owner's stores with `erase`: the SDK's interface cannot erase. */
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
          failures.push(`${where}: ${locateFailure(error)}`)
        }
      }
    } catch (error) {
      failures.push(`the stores of own_memory: ${locateFailure(error)}`)
    }
  }

  #addNote({ afterErasure }: Memory): void {
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

  async #attempt(task: string, work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      if (!(error instanceof MemoryUnavailable)) throw error
      this.report.could_not.push(`${task}: ${error.message}`)
    }
  }
}

/**
 * Delete each page of a list, and list again from the start, until the list is empty.
 *
 * `remove` returns the deleted ids. Throws MemoryUnavailable.
 */
async function eraseAll(
  listPages: () => AsyncIterable<string[]>,
  remove: (ids: string[]) => Promise<string[]>,
): Promise<void> {
  const deleted = new Set<string>() // later lists may still contain them
  let lists = 0
  let remaining = 0
  while (lists < MAX_LISTS) {
    const before = deleted.size
    remaining = 0
    try {
      for await (const page of listPages()) {
        const ids = page.filter((id) => !deleted.has(id))
        if (ids.length === 0) continue
        for (const id of await remove(ids)) deleted.add(id)
        remaining += ids.length
      }
      if (remaining === 0) return
    } catch (error) {
      // After deletions, the token of the next page may be invalid: list again.
      if (!(error instanceof MemoryUnavailable) || deleted.size === before) throw error
    }
    lists = deleted.size === before ? lists + 1 : 0
  }
  throw new MemoryUnavailable(`${remaining} items were not deleted`)
}

/** The namespaces that belong to one actor alone, and the reasons for skipping others. */
interface Scope {
  readonly namespaces: Namespace[]
  /** Namespaces that need a setting. */
  readonly missing: string[]
  /** Namespaces that other actors may share. */
  readonly shared: string[]
}

/**
 * Return the actor's own namespaces: each template up to {actorId}.
 *
 * `sessions` are the actor's sessions, for templates with {sessionId}.
 */
export function erasureScope(
  templateList: Iterable<string>,
  identity: Who,
  sessions: readonly string[],
): Scope {
  const [missing, shared]: [string[], string[]] = [[], []]
  const namespaces = new Map<string, Namespace>()
  const templates = identity.actor.includes('/') ? [] : [...new Set(templateList)]
  if (identity.actor.includes('/')) shared.push('an actor id with a / has no records')
  for (const template of templates) {
    // Records of deleted strategies are found by their paths.
    if (template.includes(STRATEGY)) continue
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
    for (const sessionId of part.includes('{sessionId}') ? sessions : ['']) {
      let namespace: Namespace
      try {
        namespace = resolve(part, { ...identity, sessionId })
      } catch (error) {
        if (!(error instanceof RangeError)) throw error
        shared.push(`records in ${error.message}`)
        break
      }
      if (templates.some((other) => mayBeOfOthers(namespace, other, identity.actor))) {
        shared.push(`records in ${namespace.path} may also belong to others`)
      } else {
        namespaces.set(namespace.path, namespace)
      }
    }
  }
  return { namespaces: [...namespaces.values()], missing, shared }
}

/**
 * Return the actor's part of a path, or the reason why its records remain.
 *
 * Return null for a path of others. Every template that matches the start of the path must mean
 * this actor, including the default template: a strategy may have used it earlier.
 */
function actorsPlace(path: string, templates: readonly string[], identity: Who) {
  const { actor, projectId } = identity
  const mayBeOther = (namespace: Namespace) =>
    templates.some((template) => mayBeOfOthers(namespace, template, actor))
  const matches = templates.flatMap((template) => matchOf(template, path, actor) ?? [])
  if (!matches.some(({ actorId }) => actorId === actor)) {
    const isNamed = path.split('/').includes(actor)
    if (!isNamed || mayBeOther(new Namespace(path))) return null
  }
  let place: Namespace | string = RENAMED
  for (const { start, actorId, project = projectId, isCertain } of matches) {
    place = new Namespace(start, true)
    const isOwn = actorId === actor && project === projectId && isCertain
    if (!isOwn || mayBeOther(place)) return UNCLEAR
  }
  return place
}

/** Match the start of a path with the actor's part of a template; prefer this actor. */
function matchOf(template: string, path: string, actor: string) {
  const part = actorsPart(template).replace(/\*$/, '')
  const own = isMixed(part) ? new RegExp(`^${patternOf(part, escaped(actor))}`).exec(path) : null
  const match = own ?? (part ? new RegExp(`^${patternOf(part)}`).exec(path) : null)
  if (!match) return null
  const { actorId, projectId: project } = match.groups!
  return { start: match[0], actorId, project, isCertain: part.split('/').every(isClear) }
}

function isClear(segment: string): boolean {
  const names = segment.match(/\{\w+\}/g) ?? []
  // Two ids in a segment have no clear border.
  return names.length < 2 && names.every((name) => KNOWN.includes(name))
}

/** Whether a segment has {actorId} and another placeholder. */
function isMixed(template: string): boolean {
  return template.split('/').some((it) => it.includes('{actorId}') && !isClear(it))
}

/** Return the template cut after the segment with {actorId}, with /*; or ''. */
function actorsPart(template: string): string {
  const segments = segmentsOf(template)
  const end = segments.findIndex((segment) => segment.includes('{actorId}')) + 1
  return end ? ['', ...segments.slice(0, end), '*'].join('/') : ''
}

/** Whether the template of another actor can resolve to a path in the namespace. */
function mayBeOfOthers(namespace: Namespace, template: string, actor: string): boolean {
  const segments = segmentsOf(namespace.path)
  const prefix = segmentsOf(template).slice(0, segments.length).join('/')
  const match = new RegExp(`^${patternOf(prefix)}$`).exec(segments.join('/'))
  return match !== null && (match.groups?.actorId !== actor || isMixed(prefix))
}

/** Return the pattern of a template's paths, with the groups `actorId` and `projectId`. */
function patternOf(template: string, actor = '[^/]+'): string {
  let pattern = ''
  for (const [index, part] of template.split(PLACEHOLDER).entries()) {
    const value = part === 'actorId' ? actor : '[^/]+'
    if (index % 2 === 0) pattern += escaped(part)
    else if (part !== 'actorId' && part !== 'projectId') pattern += value
    else pattern += pattern.includes(`<${part}>`) ? `\\k<${part}>` : `(?<${part}>${value})`
  }
  return pattern
}

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
}
