// What agents, their grants and the collections say of each other.

import type { Document } from './frontmatter.ts'
import { at, type Findings } from './rules.ts'
import type { Where } from './yaml_core.ts'

/** The documents of one folder by their names there: `support` for agents/support.agent.md. */
export type Documents = Map<string, Document>
type Verb = 'read' | 'write'

const BREADTH: Record<string, number> = { none: 0, session: 1, project: 2, user: 3 }
const STATUS: Record<string, string> = {
  disabled: 'AML-E102',
  draft: 'AML-E103',
  deprecated: 'AML-W208',
}
const ACCESS: Record<string, string[]> = {
  none: [],
  read: ['read'],
  write: ['write'],
  'read-write': ['read', 'write'],
  deny: [],
}
const UNGRANTED = { read: 'AML-E105', write: 'AML-E106' }
const VARIABLE = /[$]([{(]|[A-Za-z_])/

/** The collections that an agent names: `read` or `write`, the place in that list, the id. */
export function references(agent: Document): [verb: Verb, index: number, id: string][] {
  return (['read', 'write'] as const).flatMap((verb) =>
    agent.keys('memory', `${verb}_collections`).flatMap((_, index) => {
      const id = agent.getText('memory', `${verb}_collections`, index)
      return id === null ? [] : [[verb, index, id] as [Verb, number, string]]
    }),
  )
}

/** The collections that an IAM file names: the place in its list, and the id. */
function grants(iam: Document): [index: number, ref: string][] {
  return iam.keys('collections').flatMap((_, index) => {
    const ref = iam.getText('collections', index, 'ref')
    return ref === null ? [] : [[index, ref] as [number, string]]
  })
}

/** The findings in agents/<name>.agent.md, each at the item of the list that it is about. */
export function* lintAgent(
  name: string,
  agent: Document,
  collections: Documents,
  iam: Documents,
): Findings {
  const agentId = agent.getText('agent_id')
  if (agentId !== null && agentId !== name) {
    yield at('AML-E122', agent, ['agent_id'], { expected: `agents/${agentId}.agent.md` })
  }
  let store: string | null = null
  const [named, writers] = [references(agent), new Map<string, string>()]
  for (const [verb, index, id] of named) {
    const where = ['memory', `${verb}_collections`, index]
    const names = { name: id, agent: name }
    const collection = collections.get(id)
    if (!collection) {
      yield at('AML-E101', agent, where, names)
      continue
    }
    yield* lintReference(agent, where, collection, names)
    if (collection.get('scope', 'lifetime') === 'session') {
      store ??= id
      if (id !== store) yield at('AML-E109', agent, where, names)
    }
    const memory = collection.getText('backend', 'memory_id_secret')
    if (verb === 'write' && memory !== null) {
      const other = writers.get(memory) ?? id
      writers.set(memory, other)
      if (other !== id) yield at('AML-E111', agent, where, { ...names, other })
    }
    const access = accessTo(id, iam.get(name))
    if (!iam.has(name)) {
      const verbs = new Set(named.filter(([, , other]) => other === id).map(([one]) => one))
      const needed = [...verbs].toSorted().join('-')
      yield at('AML-E10B', agent, where, { ...names, access: needed })
    } else if (access === 'deny') yield at('AML-E10A', agent, where, names)
    else if (access !== null && !ACCESS[access]?.includes(verb)) {
      yield at(UNGRANTED[verb], agent, where, names)
    }
  }
}

function* lintReference(
  agent: Document,
  where: Where,
  collection: Document,
  names: { name: string; agent: string },
): Findings {
  const [status, mode] = [collection.getText('status'), agent.getText('memory', 'mode')]
  const lifetime = collection.getText('scope', 'lifetime')
  if (status !== null && STATUS[status]) yield at(STATUS[status], agent, where, names)
  if (mode !== null && lifetime !== null && BREADTH[lifetime]! > BREADTH[mode]!) {
    yield at('AML-E104', agent, where, { ...names, lifetime, mode })
  }
  if (where[1] === 'write_collections' && collection.get('writeback', 'enabled') === false) {
    yield at('AML-E107', agent, where, names)
  }
}

/** What is granted: of several grants the first, without any `none`; null: it is unclear. */
function accessTo(id: string, iam: Document | undefined): string | null {
  if (!iam?.data || iam.isInvalid('collections')) return null
  const found = grants(iam).find(([, ref]) => ref === id)
  return found ? iam.getText('collections', found[0], 'access') : 'none'
}

/** The findings in iam/<name>.iam.md. */
export function* lintIam(name: string, iam: Document, collections: Documents): Findings {
  const agentId = iam.getText('agent_id')
  if (agentId !== null && agentId !== name) {
    yield at('AML-E142', iam, ['agent_id'], { expected: `iam/${agentId}.iam.md` })
  }
  const seen = new Set<string>()
  for (const [index, ref] of grants(iam)) {
    const where = ['collections', index, 'ref']
    if (seen.has(ref)) yield at('AML-E14B', iam, where, { name: ref })
    seen.add(ref)
    const collection = collections.get(ref)
    if (!collection) {
      yield at('AML-E149', iam, where, { name: ref })
      continue
    }
    if (collection.get('status') === 'disabled') yield at('AML-E14A', iam, where, { name: ref })
    const access = iam.getText('collections', index, 'access')
    const isReadOnly = collection.get('writeback', 'enabled') === false
    if (isReadOnly && access !== null && ACCESS[access]?.includes('write')) {
      yield at('AML-E108', iam, ['collections', index, 'access'], { name: ref })
    }
  }
}

/** The findings at names and references that look as if something filled in a variable. */
export function* lintVariables(document: Document): Findings {
  for (const [where, text] of document.texts()) {
    const isId = ['read_collections', 'write_collections'].includes(String(where[1]))
    const isNamed = isId || where.at(-1) === 'ref' || where[0] === 'backend'
    if (isNamed && VARIABLE.test(text)) yield at('AML-W209', document, where)
  }
}
