// Check and load a project: its collections, agents and grants.

import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

import type { z } from 'zod'

import { isBlank } from '../contract.ts'
import type { Finding } from '../findings.ts'
import { ANSWERS, backendFindings, OtherConfig, secretRefs } from './backends.ts'
import { Agent, Collection, Grants, isKnown, type State } from './models.ts'
import { type Document, finding, type Findings, type Path, readDocument } from './reader.ts'
import { hasAwsCredentials, isSet, readVariable, SecretError, variableOf } from './secrets.ts'
import { checkVersions } from './versions.ts'

const UPDATE = 'uvx copier update --defaults -r :current: -d'
const SENTENCE_END = /(?<![.!?])[.!?]+(?:[ \t\n]+|$)|[。！？]+/
/** By the status of a referenced collection: the finding's id, and the end of its message. */
const STATUS = {
  disabled: ['AML-E102', 'disabled: remove it from this list'],
  draft: ['AML-E103', 'a draft: set its status to active first'],
  deprecated: ['AML-W208', 'deprecated: plan a replacement'],
} as const
const BREADTH = { none: 0, session: 1, project: 2, user: 3 }

type Reference = readonly [access: 'read' | 'write', path: Path, id: string]

/** A project file and its model; `model` is null if `errors` is not empty. */
interface File<T> {
  readonly name: string
  readonly document: Document
  readonly model: T | null
  readonly errors: Finding[]
}

/** The project's files by name: `helper` for agents/helper.agent.md. */
interface Files {
  readonly collections: ReadonlyMap<string, File<Collection>>
  readonly agents: ReadonlyMap<string, File<Agent>>
  readonly grants: ReadonlyMap<string, File<Grants>>
}

/** The collections that an agent reads and writes, by id, in the order of its file. */
export class Project {
  readonly agentId: string
  readonly collections: ReadonlyMap<string, Collection>
  readonly reads: readonly string[]
  readonly writes: readonly string[]
  readonly state: State

  constructor(agentId: string, collections: ReadonlyMap<string, Collection>, agent: Agent) {
    const { memory, state } = agent
    this.agentId = agentId
    this.state = state
    this.collections = collections
    this.reads = memory.read_collections
    this.writes = memory.write_collections
  }

  /** Return the collections that the agent reads or writes. */
  used(): Collection[] {
    const ids = new Set([...this.reads, ...this.writes])
    return [...ids].flatMap((id) => this.collections.get(id) ?? [])
  }

  /** Return the collections that can store sessions; `check` accepts at most one. */
  sessionCollections(): Collection[] {
    return this.used().filter(storesSessions)
  }

  /** Whether the agent may write to a collection. */
  isWritable({ writeback, collection_id: id }: Collection): boolean {
    return writeback.enabled && this.writes.includes(id)
  }
}

/**
 * Return the findings in a project: errors first, then by file, line and id. Never throws.
 *
 * `agentId` is the agent that runs; null selects the only agent. `against` is a commit: the
 * versions of the collections are compared with those in it.
 */
export function checkProject(folder: string, agentId: string | null, against = ''): Finding[] {
  const files = readFiles(folder)
  const findings = [...checkFolders(folder), ...checkFiles(files)]
  findings.push(...checkRunningAgent(files, agentId))
  if (against) {
    const valid = [...files.collections.values()].filter(({ model }) => model)
    findings.push(...checkVersions(folder, valid, against))
  }
  const hasError = findings.some(({ severity }) => severity === 'error')
  if (!hasError) findings.push(...checkEnvironment(files, projectOf(files, agentId)))
  const unique = new Map(findings.map((item) => [JSON.stringify(item), item]))
  const order = ['severity', 'file', 'line', 'id', 'message'] as const // "error" < "warning"
  return [...unique.values()].toSorted((a, b) => {
    const name = order.find((field) => a[field] !== b[field])
    return name === undefined ? 0 : a[name] < b[name] ? -1 : 1
  })
}

/** Load a project. Run `checkProject` first: with invalid files, this throws arbitrary errors. */
export function loadProject(folder: string, agentId: string | null): Project {
  return projectOf(readFiles(folder), agentId)
}

function projectOf({ collections, agents }: Files, agentId: string | null): Project {
  const id = agentId ?? agents.keys().next().value!
  const models = [...collections].map(([name, { model }]) => [name, model!] as const)
  return new Project(id, new Map(models), agents.get(id)!.model!)
}

function readFiles(folder: string): Files {
  return {
    collections: readFolder(folder, 'collections', '.collection.md', Collection),
    agents: readFolder(folder, 'agents', '.agent.md', Agent),
    grants: readFolder(folder, 'iam', '.iam.md', Grants),
  }
}

function readFolder<T>(folder: string, place: string, suffix: string, schema: z.ZodType<T>) {
  // Editors and macOS store hidden files there, such as .#x and ._x.
  const names = (listFolder(join(folder, place)) ?? []).filter(
    (name) => name.endsWith(suffix) && !name.startsWith('.'),
  )
  const files = names.toSorted().map((base): File<T> => {
    const document = readDocument(join(folder, place, base), `${place}/${base}`)
    const result = document.data && schema.safeParse(document.data)
    const errors = result?.error ? fieldErrors(document, result.error) : document.errors
    const name = base.slice(0, -suffix.length)
    return { name, document, model: result?.data ?? null, errors }
  })
  return new Map(files.map((file) => [file.name, file]))
}

/** Return the names in a folder, or null if the folder is missing or unreadable. */
function listFolder(folder: string): string[] | null {
  try {
    return readdirSync(folder)
  } catch {
    return null
  }
}

/** Return an error for each field that the schema rejects. */
function fieldErrors(document: Document, error: z.ZodError): Finding[] {
  const errors = new Map<string, Finding>()
  const add = (id: string, path: Path, reason: string) => {
    const field = path.map(String).join('.')
    if (!errors.has(field)) errors.set(field, document.finding(id, `${field}: ${reason}`, ...path))
  }
  for (const issue of error.issues) {
    if (issue.code === 'unrecognized_keys') {
      for (const key of issue.keys) add('AML-E303', [...issue.path, key], 'Unknown field')
    } else if (document.has(issue.path)) add('AML-E302', issue.path, issue.message)
    else add('AML-E301', issue.path, 'Field required')
  }
  return [...errors.values()]
}

function* checkFolders(folder: string): Findings {
  for (const name of ['agents', 'collections', 'iam']) {
    const isNeeded = name === 'collections' || existsSync(join(folder, name))
    if (isNeeded && listFolder(join(folder, name)) === null) {
      const message = `The folder ${name} is missing or cannot be read: add it.`
      yield finding('AML-E00F', name, 0, message)
    }
  }
}

function* checkFiles(files: Files): Findings {
  for (const file of files.collections.values()) {
    yield* file.errors
    if (!file.model) continue
    yield* checkFileName(file, 'collection_id', file.model.collection_id)
    yield* checkCollection(file.document, file.model)
  }
  for (const file of files.agents.values()) {
    yield* file.errors
    if (!file.model) continue
    yield* checkFileName(file, 'agent_id', file.model.agent_id)
    yield* checkAgent(file, file.model, files)
    yield* checkState(file.document)
  }
  for (const file of files.grants.values()) {
    yield* file.errors
    if (!file.model) continue
    yield* checkFileName(file, 'agent_id', file.model.agent_id)
    yield* checkGrants(file.document, file.model, files)
  }
}

/** Check that the running agent exists, and that this project supports its backends. */
function* checkRunningAgent(files: Files, agentId: string | null): Findings {
  const { agents, collections } = files
  if (agents.size === 0) {
    const message = 'The folder agents has no <agent_id>.agent.md: add one.'
    yield finding('AML-E131', 'agents', 0, message)
  } else if (agentId === null && agents.size > 1) {
    const message = 'The folder agents has several agents: set AGENT_ID to the agent to run.'
    yield finding('AML-E132', 'agents', 0, message)
  } else if (agentId !== null && !agents.has(agentId)) {
    const message = `AGENT_ID is ${agentId}: correct it, or add agents/${agentId}.agent.md.`
    yield finding('AML-E133', 'agents', 0, message)
  }
  const [only] = agents.size === 1 ? agents.keys() : []
  const agent = agents.get(agentId ?? only ?? '')?.model
  for (const [, , id] of agent ? referencesOf(agent) : []) {
    const { document, model } = collections.get(id) ?? {}
    const type: string | undefined = OtherConfig.safeParse(model?.backend).data?.type
    if (!document || !type) continue
    const answer = ANSWERS[type] ?? `session_store=${type}`
    // -x keeps the owner's backend in this file.
    const command = `${UPDATE} ${answer} -x ${document.file}`
    const message = `This project has no code for backend type ${type}: run \`${command}\`.`
    yield document.finding('AML-E10D', message, 'backend', 'type')
  }
}

/** Check that the secrets of the used collections are available, without network calls. */
function* checkEnvironment({ collections }: Files, project: Project): Findings {
  for (const collection of project.used()) {
    const { document } = collections.get(collection.collection_id)!
    for (const ref of secretRefs(collection.backend)) {
      const { reference, path } = ref
      const variable = variableOf(reference)
      if (isSet(variable)) {
        try {
          readVariable(ref)
        } catch (error) {
          if (!(error instanceof SecretError)) throw error
          yield document.finding('AML-E113', `${error.message}.`, ...path)
        }
      } else if (reference.startsWith('env:')) {
        const hint = 'set it, or `serve` refuses to start with a model'
        const message = `The variable ${variable} is not set: ${hint}.`
        yield document.finding('AML-W240', message, ...path)
      } else if (!hasAwsCredentials()) {
        const hint = variable ? `set ${variable}, or provide credentials` : 'provide credentials'
        const problem = `The secret ${reference} cannot be read without AWS credentials`
        const message = `${problem}: ${hint}. Until then \`serve\` refuses to start with a model.`
        yield document.finding('AML-W242', message, ...path)
      }
    }
  }
}

function* checkFileName({ document }: File<unknown>, field: string, id: string): Findings {
  const folder = document.file.split('/')[0]
  const kind = document.file.split('.').at(-2)
  const expected = `${folder}/${id}.${kind}.md`
  if (document.file === expected) return
  const message = `Rename this file to ${expected}, or correct the id.`
  yield document.finding('AML-E004', message, field)
}

function* checkCollection(document: Document, collection: Collection): Findings {
  const { backend, meta, scope, status } = collection
  if (meta.last_updated === undefined) {
    const message = 'meta.last_updated is missing: add the date of the last change.'
    yield document.finding('AML-W205', message, 'meta', 'last_updated')
  }
  const sentences = meta.description.split(SENTENCE_END).filter((text) => !isBlank(text)).length
  if (sentences < 2 || sentences > 4) {
    const message = `meta.description has ${sentences} sentences: write two to four.`
    yield document.finding('AML-W222', message, 'meta', 'description')
  }
  yield* backendFindings(document, backend, status, scope.lifetime)
}

/** Return the references of an agent to collections, with their paths. */
function referencesOf({ memory }: Agent): Reference[] {
  return (['read', 'write'] as const).flatMap((access) => {
    const field = `${access}_collections` as const
    return memory[field].map((id, index) => [access, ['memory', field, index], id] as const)
  })
}

/** Whether a collection can store sessions. A custom backend can, with any lifetime. */
export function storesSessions({ scope, backend }: Collection): boolean {
  return scope.lifetime === 'session' || backend.type === 'custom'
}

function* checkState(document: Document): Findings {
  for (const [name, value] of Object.entries(document.data?.state ?? {})) {
    if (isKnown(name, value)) continue
    const hint = 'collections/README.md has the fields and values that have an effect'
    yield document.finding('AML-W230', `state.${name} is ignored: ${hint}.`, 'state', name)
  }
}

function* checkAgent(file: File<Agent>, agent: Agent, { collections, grants }: Files): Findings {
  const { document } = file
  let store: string | null = null // the collection that stores the sessions
  const writers = new Map<string, string>()
  const named = referencesOf(agent).map(([, , id]) => collections.get(id)?.model)
  const userMemory = named.find((used) => {
    return used?.scope.lifetime === 'user' && !storesSessions(used)
  })
  for (const reference of referencesOf(agent)) {
    const [access, path, id] = reference
    const collection = collections.get(id)
    if (!collection) {
      const message = `collections/${id}.collection.md does not exist: add it, or correct the id.`
      yield document.finding('AML-E101', message, ...path)
      continue
    }
    yield* checkAccess(file, agent, reference, grants)
    const { model } = collection
    if (!model) continue
    yield* checkReference(document, agent, reference, model)
    if (storesSessions(model)) {
      store ??= id
      if (id !== store) {
        const message = `${id} and ${store} could both store the sessions: remove one of them.`
        yield document.finding('AML-E109', message, ...path)
      } else if (!agent.memory.read_collections.includes(id)) {
        const message = `Sessions are loaded before turns: add ${id} to read_collections too.`
        yield document.finding('AML-E10C', message, ...path)
      }
    } else if (access === 'write') {
      const { backend } = model
      const isExclusive = backend.type === 'agentcore_memory'
      for (const { reference } of isExclusive ? secretRefs(backend) : []) {
        const other = writers.get(reference) ?? id
        writers.set(reference, other)
        if (other === id) continue
        const message = `${id} and ${other} write to the same memory: remove one of them.`
        yield document.finding('AML-E111', message, ...path)
      }
      if (model.scope.lifetime === 'project' && userMemory) {
        const quotes = `including quotes from ${userMemory.collection_id}`
        const hint = `remove ${id} from write_collections`
        const message = `Turns recorded in ${id} are visible to all users, ${quotes}: ${hint}.`
        yield document.finding('AML-W229', message, ...path)
      }
    }
  }
}

function* checkReference(
  document: Document,
  { memory: { mode } }: Agent,
  [access, path, id]: Reference,
  { status, scope: { lifetime }, writeback }: Collection,
): Findings {
  if (status !== 'active') {
    const [number, message] = STATUS[status]
    yield document.finding(number, `Collection ${id} is ${message}.`, ...path)
  }
  if (BREADTH[lifetime] > BREADTH[mode]) {
    const message = `Collection ${id} has lifetime ${lifetime}: memory.mode ${mode} is too narrow.`
    yield document.finding('AML-E104', message, ...path)
  }
  if (access === 'write' && !writeback.enabled) {
    const problem = `Collection ${id} has writeback.enabled: false`
    yield document.finding('AML-E107', `${problem}: remove it from write_collections.`, ...path)
  }
}

/** Compare a reference with the grants of its agent; without a grant, access is denied. */
function* checkAccess(
  { name, document }: File<Agent>,
  agent: Agent,
  [access, path, id]: Reference,
  grants: Files['grants'],
): Findings {
  const file = grants.get(name)
  const place = `iam/${name}.iam.md`
  if (!file) {
    const references = referencesOf(agent).filter(([, , other]) => other === id)
    const needed = [...new Set(references.map(([access]) => access))].join('-')
    const hint = `create it, and grant ${needed} access to ${id}`
    yield document.finding('AML-E10B', `${place} does not exist: ${hint}.`, ...path)
  }
  if (!file?.model) return
  const granted = file.model.collections.find(({ ref }) => ref === id)?.access ?? 'none'
  if (granted === 'deny') {
    yield document.finding('AML-E10A', `${place} denies access to ${id}.`, ...path)
  } else if (!granted.split('-').includes(access)) {
    const number = access === 'read' ? 'AML-E105' : 'AML-E106'
    yield document.finding(number, `${place} does not grant ${access} access to ${id}.`, ...path)
  }
}

function* checkGrants(document: Document, { collections: grants }: Grants, files: Files): Findings {
  const seen = new Set<string>()
  for (const [index, { ref, access }] of grants.entries()) {
    const path = ['collections', index]
    const file = files.collections.get(ref)
    const model = files.collections.get(ref)?.model
    if (seen.has(ref)) {
      yield document.finding('AML-E14B', `${ref} is listed twice: keep one grant.`, ...path, 'ref')
    }
    seen.add(ref)
    if (!file) {
      const message = `collections/${ref}.collection.md does not exist: add it, or correct the id.`
      yield document.finding('AML-E101', message, ...path, 'ref')
    } else if (model?.status === 'disabled') {
      const [number, message] = STATUS.disabled
      yield document.finding(number, `Collection ${ref} is ${message}.`, ...path, 'ref')
    }
    if (model?.writeback.enabled === false && access.includes('write')) {
      const problem = `Collection ${ref} has writeback.enabled: false`
      yield document.finding('AML-E108', `${problem}: grant read access only.`, ...path, 'access')
    }
  }
}
