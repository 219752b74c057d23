// A project's collections, agents and grants: checked as a whole, and loaded for a start.

import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

import type { Diagnostic } from '../settings.ts'
import { read } from './frontmatter.ts'
import { changedSince } from './history.ts'
import { lint } from './lint.ts'
import { agent, type Collection, collection, iam } from './models.ts'
import { type Documents, lintAgent, lintIam, lintVariables, references } from './references.ts'
import { finding, type Findings, wrongFields } from './rules.ts'

// Kind of file -> its folder and its model.
const KINDS = {
  collection: ['collections', collection],
  agent: ['agents', agent],
  iam: ['iam', iam],
} as const
type Kind = keyof typeof KINDS

/** What an agent may read and write: ids of collections, in the order of its file. */
export interface Project {
  readonly agentId: string
  readonly collections: ReadonlyMap<string, Collection>
  readonly reads: readonly string[]
  readonly writes: readonly string[]
}

/**
 * What is wrong in a project: errors first, then by file, line and id.
 *
 * `agentId` is the agent that runs, by default the only one; `against` is a commit to compare
 * with. Each id is told once per line. Never throws, whatever the files hold.
 */
export function checkProject(
  folder: string,
  agentId: string | null = null,
  against: string | null = null,
): Diagnostic[] {
  const found = new Map<string, Diagnostic>()
  for (const one of findings(folder, agentId, against)) {
    found.set(JSON.stringify([one.id, one.file, one.line]), one)
  }
  const order = ['severity', 'file', 'line', 'id'] as const // "error" is before "warning"
  return [...found.values()].toSorted((a, b) => {
    const name = order.find((one) => a[one] !== b[one])
    return name === undefined ? 0 : a[name] < b[name] ? -1 : 1
  })
}

/** The project in which `checkProject` finds no error; otherwise this throws anything. */
export function loadProject(folder: string, agentId: string | null = null): Project {
  const agents = documentsIn(folder, 'agent')
  const id = agentId ?? agents.keys().next().value!
  const named = references(agents.get(id)!)
  const collections = [...documentsIn(folder, 'collection')]
  return {
    agentId: id,
    collections: new Map(collections.map(([one, { data }]) => [one, collection.parse(data)])),
    reads: named.filter(([verb]) => verb === 'read').map(([, , one]) => one),
    writes: named.filter(([verb]) => verb === 'write').map(([, , one]) => one),
  }
}

function* findings(folder: string, agentId: string | null, against: string | null): Findings {
  const documents = {} as Record<Kind, Documents>
  for (const [kind, [name, model]] of Object.entries(KINDS) as [Kind, (typeof KINDS)[Kind]][]) {
    const isNeeded = kind === 'collection' || existsSync(join(folder, name))
    if (isNeeded && namesIn(join(folder, name)) === null)
      yield finding('AML-E00F', name, 0, { name })
    documents[kind] = documentsIn(folder, kind)
    for (const document of documents[kind].values()) {
      for (const [id, line, names] of document.wrong) yield finding(id, document.file, line, names)
      if (document.data === null) continue
      yield* wrongFields(kind, model, document)
      yield* lintVariables(document)
    }
  }
  const { collection: collections, agent: agents, iam: grants } = documents
  for (const [stem, document] of collections) yield* lint(document, stem)
  for (const [stem, document] of agents) yield* lintAgent(stem, document, collections, grants)
  for (const [stem, document] of grants) yield* lintIam(stem, document, collections)
  if (agents.size === 0) yield finding('AML-E131', 'agents', 0)
  else if (agentId === null && agents.size > 1) yield finding('AML-E132', 'agents', 0)
  else if (agentId !== null && !agents.has(agentId)) {
    yield finding('AML-E133', 'agents', 0, { name: agentId })
  }
  if (against !== null) yield* changedSince(against, folder, collections)
}

/** The names in a folder; null where there is none that can be read. */
function namesIn(folder: string): string[] | null {
  try {
    return readdirSync(folder)
  } catch {
    return null
  }
}

/** The files of one kind, by their names without .<kind>.md. */
function documentsIn(folder: string, kind: Kind): Documents {
  const [[name], suffix] = [KINDS[kind], `.${kind}.md`]
  const found = (namesIn(join(folder, name)) ?? []).filter((file) => file.endsWith(suffix))
  return new Map(
    found.toSorted().map((file) => {
      return [file.slice(0, -suffix.length), read(join(folder, name, file), `${name}/${file}`)]
    }),
  )
}
