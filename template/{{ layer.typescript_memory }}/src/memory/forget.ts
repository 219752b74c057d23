// The command `forget`: erases what the stores and memories of the agent have of one person.

import { existsSync } from 'node:fs'
import { parseArgs } from 'node:util'

import { ACTOR_ID, ERRORS } from '../contract.ts'
import { Parts } from '../parts.ts'
import { readSettings } from '../settings.ts'
import { AgentCore } from './agentcore.ts'
import { Unavailable } from './backends.ts'
import { eraseEvents, eraseRecords, hasAny, linesOf, patiently, type Report } from './erasing.ts'
import { LocalMemory } from './local_memory.ts'
import type { Memory } from './memories.ts'
import type { Collection } from './models.ts'
import { ownPlaces } from './ownership.ts'
import { loadProject } from './project.ts'
import { namespacesOf } from './recall.ts'
import { Refusal } from './session_commands.ts'
import { eraseSessions } from './session_owners.ts'

const AGAIN = 'records may still be made of what was said last: run this again in some minutes'
const HELP = `Usage: node src/memory/main.ts forget --actor ID [--json]

  Erase an actor's sessions, events and records; exit with 1 if some are left.

Options:
  --actor ID  Who is forgotten.  [required]
  --json      Print one JSON object.`

/** Run `forget` with these arguments. Throws Refusal, and for an option that it lacks. */
export async function forget(args: string[]): Promise<void> {
  const [text, flag] = [{ type: 'string' }, { type: 'boolean' }] as const
  const { values } = parseArgs({ args, options: { actor: text, json: flag, help: flag } })
  if (values.help) return console.log(HELP)
  if (values.actor === undefined) throw new Refusal("Missing option '--actor'.", 2)
  if (!ACTOR_ID.test(values.actor)) throw new Refusal(ERRORS.invalid_actor[1], 2)
  const [settings, found] = readSettings()
  found.push(...(await Parts.check(settings)))
  const errors = found.filter((one) => one.severity === 'error')
  if (errors.length > 0) throw new Refusal(errors.map((one) => one.message).join('\n'))
  const parts = new Parts(settings)
  const report = await erase(parts, values.actor).finally(() => parts.close())
  console.log(values.json ? JSON.stringify(report) : linesOf(report).join('\n'))
  process.exitCode = Math.min(report.could_not.length, 1)
}

/** Erase what there is of an actor, as far as it can be done and told apart. */
export async function erase(parts: Parts, actor: string): Promise<Report> {
  const report: Report = { actor, sessions: 0, events: 0, records: 0, could_not: [], notes: [] }
  const project = loadProject('.', parts.options.agentId)
  const memories = [...parts.longTerm.memories].map(([id, memory]): [Collection, Memory] => [
    project.collections.get(id)!,
    memory,
  ])
  for (const [collection, memory] of memories.slice()) {
    const id = collection.collection_id // of earlier trials, without the service
    if (!(memory instanceof AgentCore)) {
      report.notes.push(`collection ${id} was looked for in ${memory.contact}`)
    } else if (existsSync(`.memory/${id}.jsonl`)) {
      memories.push([collection, new LocalMemory(id, [])])
    }
  }
  const heard: (string[] | null)[] = []
  for (const [{ collection_id: id }, memory] of memories) {
    const told = (error: unknown) => {
      if (!(error instanceof Unavailable)) throw error
      report.could_not.push(`events of collection ${id}: ${error.message}`)
      return null
    }
    heard.push(await patiently(() => memory.sessions(actor)).catch(told))
  }
  const known = new Set(heard.flatMap((some) => some ?? []))
  await eraseSessions(parts, project, [...known].toSorted(), report)
  for (const [at, [collection, memory]] of memories.entries()) {
    await eraseMemory(collection, memory, heard[at] ?? [], parts.options.projectId, report)
  }
  report.notes = [...new Set(report.notes)]
  return report
}

async function eraseMemory(
  collection: Collection,
  memory: Memory,
  sessions: readonly string[],
  projectId: string | null,
  report: Report,
): Promise<void> {
  const { collection_id: id, backend, scope, writeback } = collection
  const [where, before] = [`of collection ${id}`, report.events]
  const declared = backend.type === 'agentcore_memory' ? backend.retrieval_config : {}
  const templates = Object.keys(declared ?? {})
  const trying = async (what: string, work: () => Promise<void>) => {
    try {
      await work()
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error
      report.could_not.push(`${what}: ${error.message}`)
    }
  }
  await trying(`records ${where} in all its namespaces`, async () => {
    if (memory instanceof AgentCore) {
      // Which writes to namespaces that are not read, too.
      const reader = { collectionId: id, lifetime: 'project', memory, declared: null }
      templates.push(...Object.keys(await patiently(() => namespacesOf(reader))))
    } else if (templates.length === 0) {
      templates.push(scope.lifetime === 'user' ? '/users/{actorId}' : '/projects/{projectId}')
    }
  })
  const own = ownPlaces(templates, { actor: report.actor, sessionId: '', projectId }, sessions)
  report.could_not.push(...own.missing.map((what) => `${what} (${where})`))
  report.notes.push(...own.shared.map((what) => `${what} (${where})`))
  const places = [...own.places.values()]
  await trying(`events ${where}`, async () => {
    if (writeback.enabled) await eraseEvents(memory, sessions, report)
    else if (await hasAny(memory, sessions, places, report.actor)) {
      report.could_not.push(`events and records ${where}: it is read-only here`)
    }
  })
  await trying(`records ${where}`, async () => {
    for (const place of writeback.enabled ? places : []) await eraseRecords(memory, place, report)
  })
  if (memory instanceof AgentCore && report.events > before) report.notes.push(AGAIN)
}
