// The long-term memories of an agent: which there are, and what each turn does with them.

import { secretRefs } from '../collections/backends.ts'
import type { Project } from '../collections/check.ts'
import type { Collection } from '../collections/models.ts'
import { type Secrets, unsetVariables } from '../collections/secrets.ts'
import { AgentError, type TurnRequest } from '../contract.ts'
import type { Settings } from '../settings.ts'
import { AgentCore, Clients } from './agentcore.ts'
import { type MemoryCollection, MemoryUnavailable, type Utterance } from './base.ts'
import { LocalMemory } from './local.ts'
import { resolve, type Who } from './namespaces.ts'
import { current, DEFAULT, MemoryTurn } from './recall.ts'
import { Recorder } from './record.ts'

const SLASH = 'An actor id must not contain /: the namespaces of two actors could meet.'

/** The long-term memories that the collections of an agent declare. */
export class LongTermMemory {
  readonly collections: readonly MemoryCollection[]
  readonly recorder: Recorder
  readonly actorRequired: boolean
  readonly project: Project
  readonly projectId: string | null
  readonly #settings: Settings
  readonly #clients: Clients
  readonly #turns = new WeakMap<TurnRequest, MemoryTurn>()

  constructor(settings: Settings, project: Project, secrets: Secrets) {
    this.project = project
    this.projectId = settings.projectId
    this.#settings = settings
    this.#clients = new Clients(settings.recallTimeoutSeconds)
    this.collections = project.used().flatMap((collection) => {
      return this.#build(collection, secrets) ?? []
    })
    this.recorder = new Recorder(this.writers)
    this.actorRequired = this.collections.length > 0
  }

  /** The collections that are read. */
  get readers(): MemoryCollection[] {
    return this.collections.filter(({ isRead }) => isRead)
  }

  /** The collections that are written to. */
  get writers(): MemoryCollection[] {
    return this.collections.filter(({ isWritable }) => isWritable)
  }

  /** Whether something of a committed turn is still to be recorded. */
  get isWaiting(): boolean {
    return this.recorder.isWaiting
  }

  /** Where what was said goes, for whoever leaves a session; '' for nowhere. */
  get retentionNotice(): string {
    return this.writers
      .map(({ memory }) => ` Its texts are recorded in ${memory.contact}.`)
      .join('')
  }

  /** What in the settings and files keeps the memories from being used; '' for nothing. */
  get problem(): string {
    return this.collections.map(problemOf).find(Boolean) ?? ''
  }

  /** Where each collection is, one line each. */
  describeEndpoints(): string[] {
    return this.collections.map(({ memory }) => {
      const how = memory instanceof AgentCore ? 'contacts' : 'in'
      return `Long-term memory: ${how} ${memory.contact}`
    })
  }

  /** Begin the turn of a request. Throws AgentError: `actor_required` and `invalid_actor`. */
  begin(request: TurnRequest): MemoryTurn {
    const { actor, sessionId } = request
    if (this.actorRequired && !actor) throw new AgentError('actor_required')
    if (this.actorRequired && actor?.includes('/')) throw new AgentError('invalid_actor', SLASH)
    const who: Who = { actor: actor ?? '', sessionId, projectId: this.projectId }
    const seconds = this.#settings.recallTimeoutSeconds
    const turn = new MemoryTurn(who, this.readers, { isWritable: this.writers.length > 0, seconds })
    this.#turns.set(request, turn)
    current.enterWith(turn)
    return turn
  }

  /** Record what a committed turn said and added; return it, or undefined if it never began. */
  record(request: TurnRequest, said: readonly Utterance[]): MemoryTurn | undefined {
    const turn = this.#turns.get(request)
    if (!turn) return undefined
    turn.isOver = true
    const added = turn.added.map((text): Utterance => ['USER', text])
    this.recorder.record(turn.who, [...said, ...added], turn.began)
    return turn
  }

  /** Look up the ids and `warmUp` the clients. Throws AgentError; its detail is for the owner. */
  async open(warmUp: (clients: Clients, region: string) => Promise<void>): Promise<void> {
    try {
      if (this.problem) throw new MemoryUnavailable(this.problem)
      const names = new Map<string, string>()
      for (const { id, memory, isWritable, namespaces } of this.collections) {
        if (!(memory instanceof AgentCore)) continue
        const [name = ''] = (await memory.memoryId()).split('/').slice(-1)
        const other = names.get(`${memory.region} ${name}`)
        if (isWritable && other) throw new MemoryUnavailable(twice(other, id))
        if (isWritable) names.set(`${memory.region} ${name}`, id)
        await warmUp(this.#clients, memory.region)
        if (!namespaces) await this.#clients.get('control', memory.region)
      }
    } catch (error) {
      if (!(error instanceof MemoryUnavailable)) throw error
      throw new AgentError('store_unavailable', '', `${error.message}.`)
    }
  }

  /** Record what waits within this time, and take no more. */
  async close(seconds: number): Promise<void> {
    await this.recorder.close(seconds)
    await this.#clients.close()
  }

  #build(collection: Collection, secrets: Secrets): MemoryCollection | null {
    const { collection_id: id, backend, scope } = collection
    if (backend.type !== 'agentcore_memory') return null
    const declared = backend.retrieval_config ?? null
    const [unset] = unsetVariables(this.#settings, collection)
    const local = { [defaultTemplate(collection)]: DEFAULT }
    const namespaces = declared ?? (unset ? local : null)
    const templates = Object.keys(namespaces ?? {})
    const needsProject = scope.lifetime === 'project' || templates.join().includes('{projectId}')
    const memory = unset
      ? new LocalMemory(id, templates, `, until ${unset} is set`)
      : new AgentCore(secretRefs(collection.backend)[0]!, backend.region, secrets, this.#clients)
    return {
      id,
      lifetime: scope.lifetime,
      memory,
      isRead: this.project.reads.includes(id),
      isWritable: this.project.isWritable(collection),
      batchSize: backend.batch_size,
      needsProject,
      projectId: needsProject ? this.projectId : null,
      namespaces,
    }
  }
}

/** Return the namespace of a local memory whose collection declares none. */
export function defaultTemplate({ scope }: Collection): string {
  return scope.lifetime === 'user' ? '/users/{actorId}' : '/projects/{projectId}'
}

function problemOf({ id, needsProject, namespaces, projectId }: MemoryCollection): string {
  if (needsProject && !projectId) return `PROJECT_ID is not set, and collection ${id} needs it`
  try {
    for (const template of Object.keys(namespaces ?? {})) {
      resolve(template, { actor: 'a', sessionId: 's', projectId })
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error
    return `collection ${id}: ${error.message}`
  }
  return ''
}

// An event belongs to no namespace: written for two collections, it would be there twice.
function twice(one: string, other: string): string {
  const what = `collections ${one} and ${other} both write to one memory`
  return `${what}: it would record each turn twice`
}
