// Which long-term memories a project has: who reads them, and who writes to them.

import type { Settings } from '../settings.ts'
import { AgentCore } from './agentcore.ts'
import { Clients } from './agentcore_client.ts'
import { Unavailable } from './backends.ts'
import { LocalMemory } from './local_memory.ts'
import type { Memory } from './memories.ts'
import type { Collection } from './models.ts'
import { resolve } from './namespaces.ts'
import type { Options } from './options.ts'
import type { Project } from './project.ts'
import type { Reader, Wanted } from './recall.ts'
import type { Writer } from './recorder.ts'
import { type Secrets, variableOf } from './secrets.ts'
import { isWritable } from './stores.ts'

export type AgentCoreMemory = Extract<Collection['backend'], { type: 'agentcore_memory' }>

/** The memories by the ids of their collections, and the ways to them. */
export interface Topology {
  readonly clients: Clients
  readonly memories: Map<string, Memory>
  readonly readers: Reader[]
  readonly writers: Writer[]
}

/** What the collections of AgentCore Memory mean. Throws Unavailable for what cannot work. */
export function buildTopology(
  settings: Settings,
  options: Options,
  project: Project,
  secrets: Secrets,
): Topology {
  const clients = new Clients(options)
  const built: Topology = { clients, memories: new Map(), readers: [], writers: [] }
  const names: [collection: string, memory: string][] = []
  for (const id of new Set([...project.reads, ...project.writes])) {
    const collection = project.collections.get(id)
    if (collection?.backend.type !== 'agentcore_memory') continue
    const { backend, scope } = collection
    const { memory_id_secret: reference = '', region, retrieval_config: declared = null } = backend
    const value = projectOf(collection, declared, options.projectId)
    const unset = settings.model === 'offline' ? unsetVariable(backend) : ''
    const wanted = unset && declared === null ? defaultOf(scope.lifetime) : declared
    const memory: Memory = unset
      ? new LocalMemory(id, Object.keys(wanted ?? {}), `, until ${unset} is set`)
      : new AgentCore(reference, region, secrets, clients)
    built.memories.set(id, memory)
    if (project.reads.includes(id)) {
      const { lifetime } = scope
      built.readers.push({ collectionId: id, lifetime, memory, declared: wanted })
    }
    if (!isWritable(project, collection)) continue
    const [path = '', field = ''] = reference.split('#')
    const known = process.env[variableOf(reference)]?.trim() || path
    names.push([id, JSON.stringify([region, known, field])])
    built.writers.push({ collectionId: id, memory, batchSize: backend.batch_size, project: value })
  }
  checkWriters(names)
  return built
}

/** At most one collection writes to a memory, whatever secrets name it. Throws Unavailable. */
export async function checkTopology({ writers }: Topology): Promise<void> {
  if (writers.length < 2) return
  const names: [collection: string, memory: string][] = []
  for (const { collectionId, memory } of writers) {
    if (!(memory instanceof AgentCore)) continue
    const [name = ''] = (await memory.memoryId()).split('/').slice(-1)
    names.push([collectionId, JSON.stringify([memory.region, name])])
  }
  checkWriters(names)
}

/** The variable to set before the memory is used while the model is offline, or ''. */
function unsetVariable({ memory_id_secret: reference = '' }: AgentCoreMemory): string {
  const name = variableOf(reference)
  return process.env[name]?.trim() ? '' : name
}

function defaultOf(lifetime: string): Record<string, Wanted> {
  const template = lifetime === 'user' ? '/users/{actorId}' : '/projects/{projectId}'
  return { [template]: { top_k: 10, relevance_score: 0.2 } }
}

/** The value of {projectId}, if the collection needs it; its namespaces are tried. */
function projectOf(
  { collection_id: id, scope }: Collection,
  declared: Record<string, Wanted> | null,
  projectId: string | null,
): string | null {
  const templates = Object.keys(declared ?? {})
  const isNeeded = scope.lifetime === 'project' || templates.join().includes('{projectId}')
  if (isNeeded && projectId === null) {
    throw new Unavailable(`PROJECT_ID is not set, and collection ${id} needs it`)
  }
  try {
    for (const template of templates) resolve(template, { actor: 'a', sessionId: 's', projectId })
  } catch (error) {
    if (!(error instanceof RangeError)) throw error
    throw new Unavailable(`collection ${id}: ${error.message}`)
  }
  return isNeeded ? projectId : null
}

/** An event belongs to no namespace: to write it for two collections would be to say it twice. */
function checkWriters(names: [collection: string, memory: string][]): void {
  const known = new Map<string, string>()
  for (const [id, name] of names) {
    const other = known.get(name)
    if (other !== undefined) {
      const what = `collections ${other} and ${id} both write to one memory`
      throw new Unavailable(`${what}: it would get each turn twice`)
    }
    known.set(name, id)
  }
}
