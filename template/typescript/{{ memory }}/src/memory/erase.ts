// Erasure: what the stores and memories of an agent hold of one actor, and of nobody else.

import { existsSync } from 'node:fs'

import type { Project } from '../collections/check.ts'
import type { Collection } from '../collections/models.ts'
import type { Settings } from '../settings.ts'
import { AgentCore } from './agentcore.ts'
import { type Memory, MemoryUnavailable } from './base.ts'
import { LocalMemory } from './local.ts'
import { Namespace, resolve, segmentsOf, type Who, writtenTemplates } from './namespaces.ts'
import { withRetries } from './retry_queue.ts'
import { defaultOf, type LongTermMemory } from './wiring.ts'

const PLACEHOLDER = /\{(\w+)\}/
const AGAIN = 'records of the last turns may still be extracted: run this again in some minutes'
const RETRIES = { retries: 2, minTimeout: 500, factor: 4 }

/** What was erased of an actor, what could not be, and what else there is to know. */
interface Report {
  readonly actor: string
  sessions: number
  events: number
  records: number
  readonly could_not: string[]
  notes: string[]
}

/** What of a runtime is needed to erase an actor; null: sessions live in each process. */
interface Erasable {
  readonly settings: Settings
  readonly project: Project
  readonly longTerm: LongTermMemory
  readonly eraseSessions:
    | ((
        actor: string,
        candidates: string[],
      ) => Promise<{ ended: string[]; failures: string[]; notes: string[] }>)
    | null
}

/** Erase what there is of an actor, as far as it can be told apart from others. */
export async function erase(runtime: Erasable, actor: string): Promise<Report> {
  const { longTerm, project, settings } = runtime
  const report: Report = { actor, sessions: 0, events: 0, records: 0, could_not: [], notes: [] }
  const memories: [Collection, Memory, sessions: string[]][] = []
  for (const { id, memory } of longTerm.collections) {
    const collection = project.collections.get(id)!
    memories.push([collection, memory, []])
    if (!(memory instanceof AgentCore)) {
      report.notes.push(`collection ${id} was searched in ${memory.contact}`)
    } else if (existsSync(`.memory/${id}.jsonl`)) {
      memories.push([collection, new LocalMemory(id, []), []]) // of earlier trials
    }
  }
  for (const one of memories) {
    await attempt(report, `events of collection ${one[0].collection_id}`, async () => {
      one[2] = await withRetries(() => one[1].sessions(actor), RETRIES)
    })
  }
  if (runtime.eraseSessions) {
    const known = new Set(memories.flatMap(([, , sessions]) => sessions))
    const { ended, failures, notes } = await runtime.eraseSessions(actor, [...known].toSorted())
    report.sessions = ended.length
    report.could_not.push(...failures)
    report.notes.push(...notes)
  } else {
    report.notes.push('no session store was searched: sessions live in the process')
  }
  for (const [collection, memory, sessions] of memories) {
    await eraseMemory(collection, memory, sessions, settings.projectId, report)
  }
  report.notes = [...new Set(report.notes)]
  return report
}

/** Return the report as lines of text. */
export function linesOf(report: Report): string[] {
  const counts = (['sessions', 'events', 'records'] as const).map(
    (name) => `${name} erased: ${report[name]}`,
  )
  const failures = report.could_not.map((what) => `could not: ${what}`)
  return [...counts, ...failures, ...report.notes.map((what) => `note: ${what}`)]
}

async function eraseMemory(
  { collection_id: id, backend, scope, writeback }: Collection,
  memory: Memory,
  sessions: readonly string[],
  projectId: string | null,
  report: Report,
): Promise<void> {
  const [where, before] = [`of collection ${id}`, report.events]
  const declared = backend.type === 'agentcore_memory' ? backend.retrieval_config : {}
  const templates = Object.keys(declared ?? {})
  await attempt(report, `records ${where} in all its namespaces`, async () => {
    const resource = await withRetries(() => memory.describe(), RETRIES)
    // Strategies also write to namespaces that are not read.
    templates.push(...writtenTemplates(resource?.strategies ?? []))
    if (!resource && templates.length === 0)
      templates.push(...Object.keys(defaultOf(scope.lifetime)))
  })
  const who = { actor: report.actor, sessionId: '', projectId }
  const own = erasureScope(templates, who, sessions)
  report.could_not.push(...own.missing.map((what) => `${what} (${where})`))
  report.notes.push(...own.shared.map((what) => `${what} (${where})`))
  if (!writeback.enabled) {
    await attempt(report, `events ${where}`, async () => {
      if (!(await hasAny(memory, sessions, own.namespaces, report.actor))) return
      report.could_not.push(`events and records ${where}: it is read-only here`)
    })
    return
  }
  await attempt(report, `events ${where}`, () => eraseEvents(memory, sessions, report))
  await attempt(report, `records ${where}`, async () => {
    for (const namespace of own.namespaces) await eraseRecords(memory, namespace, report)
  })
  if (memory instanceof AgentCore && report.events > before) report.notes.push(AGAIN)
}

async function attempt(report: Report, what: string, work: () => Promise<void>): Promise<void> {
  try {
    await work()
  } catch (error) {
    if (!(error instanceof MemoryUnavailable)) throw error
    report.could_not.push(`${what}: ${error.message}`)
  }
}

async function eraseEvents(
  memory: Memory,
  sessions: readonly string[],
  report: Report,
): Promise<void> {
  const { actor } = report
  for (const session of sessions) {
    for (const event of await withRetries(() => memory.events(actor, session), RETRIES)) {
      await withRetries(() => memory.deleteEvent(actor, session, event), RETRIES)
      report.events++
    }
  }
}

/** Delete all records of a namespace, until it has none. Throws MemoryUnavailable. */
async function eraseRecords(memory: Memory, namespace: Namespace, report: Report): Promise<void> {
  let wasWhole = false
  for (;;) {
    const ids = await withRetries(() => memory.records(namespace), RETRIES)
    if (ids.length === 0) return
    const deleted = await withRetries(() => memory.deleteRecords(ids), RETRIES)
    report.records += deleted
    if (deleted === 0 && wasWhole) return // for a while, a list may show what was deleted before
    if (deleted === 0) {
      throw new MemoryUnavailable(`${ids.length} in ${namespace.path} were not deleted`)
    }
    wasWhole = deleted === ids.length
  }
}

async function hasAny(
  memory: Memory,
  sessions: readonly string[],
  namespaces: readonly Namespace[],
  actor: string,
): Promise<boolean> {
  const lists = [
    ...sessions.map((session) => () => memory.events(actor, session)),
    ...namespaces.map((namespace) => () => memory.records(namespace)),
  ]
  for (const list of lists) if ((await withRetries(list, RETRIES)).length > 0) return true
  return false
}

interface Scope {
  readonly namespaces: Namespace[]
  /** What to set, to find more. */
  readonly missing: string[]
  /** What cannot be told apart. */
  readonly shared: string[]
}

/** The namespaces that are one actor's alone: all below {actorId}; `sessions` are the actor's. */
export function erasureScope(
  given: Iterable<string>,
  who: Who,
  sessions: readonly string[],
): Scope {
  const [missing, shared]: [string[], string[]] = [[], []]
  const namespaces = new Map<string, Namespace>()
  const templates = who.actor.includes('/') ? [] : [...new Set(given)]
  if (who.actor.includes('/')) shared.push('no records are made for an actor id with a /')
  for (const template of templates) {
    const own = ownPart(template)
    if (!own) {
      shared.push(`records in ${template} are of all people`)
      continue
    }
    if (own.includes('{projectId}') && !who.projectId) {
      missing.push(`records in ${template}: PROJECT_ID is not set`)
      continue
    }
    if (own.includes('{projectId}')) {
      shared.push(`only records of project ${who.projectId} are erased in ${template}`)
    }
    if (own.includes('{sessionId}')) {
      shared.push(`only records of the listed sessions are erased in ${template}`)
    }
    for (const sessionId of own.includes('{sessionId}') ? sessions : ['']) {
      let namespace: Namespace
      try {
        namespace = resolve(own, { ...who, sessionId })
      } catch (error) {
        if (!(error instanceof RangeError)) throw error
        shared.push(`records in ${error.message}`)
        break
      }
      if (templates.some((one) => isOfOthers(namespace, one, who.actor))) {
        shared.push(`records in ${namespace.path} may be of others too`)
      } else {
        namespaces.set(namespace.path, namespace)
      }
    }
  }
  return { namespaces: [...namespaces.values()], missing, shared }
}

/** The template up to the segment with {actorId}, and all below; '' without such a segment. */
function ownPart(template: string): string {
  const segments = segmentsOf(template)
  const end = segments.findIndex((one) => one.includes('{actorId}')) + 1
  return end ? ['', ...segments.slice(0, end), '*'].join('/') : ''
}

/** Whether a template may stand for something in that namespace for anybody else. */
function isOfOthers(namespace: Namespace, template: string, actor: string): boolean {
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
