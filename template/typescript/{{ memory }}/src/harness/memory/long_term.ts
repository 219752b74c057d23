// The capability that connects memory collections to recall and recording.

import { isDeepStrictEqual } from 'node:util'

import { Capability, type Options } from '../capability.ts'
import { secretRefs } from '../collections/backends.ts'
import { Declarations } from '../collections/capability.ts'
import { type Stock, unread } from '../collections/erasure.ts'
import { BATCH_SIZE, DEFAULT, type MemoryConfig } from '../collections/memory_backend.ts'
import type { Collection } from '../collections/models.ts'
import { unsetVariables } from '../collections/secrets.ts'
import { AgentError, type Turn } from '../contract.ts'
import { diagnostic, type Finding } from '../findings.ts'
import type { Modules } from '../modules.ts'
import { addMemory, record, storesFor } from './adapter.ts'
import { Clients } from './aws.ts'
import { type Memory, type MemoryCollection, MemoryUnavailable, type Utterance } from './base.ts'
import { checkPolicy, checkResources } from './check.ts'
import { LATER, type Report } from './erasure_report.ts'
import { KINDS } from './kinds.ts'
import { LocalMemory } from './local.ts'
import { defaultTemplate, resolve } from './namespaces.ts'
import { MemoryPolicy, policyOf } from './policy.ts'
import { localStocks, ownStoreStocks, stocksOf } from './project_erasure.ts'
import { MemoryTurn, type Notes, turnStorage } from './recall.ts'
import { type Extract, type Memories, Recorder } from './record.ts'
import type { MemorySettings } from './settings.ts'

// Per store, because providers reject tools with long descriptions.
const MAX_DESCRIPTION_CHARS = 200
const SLASH = 'An actor id must not contain /: the namespaces of two actors could overlap.'

/** The agent's memories. Does nothing without a memory collection. */
export class LongTermMemory extends Capability<MemorySettings> implements Memories {
  readonly declarations: Declarations
  readonly tracedAs = 'memory'
  readonly turns = new WeakMap<Turn, MemoryTurn>()
  /** Wraps a memory. TracedCalls sets it. */
  decorate: (memory: Memory) => Memory = (memory) => memory
  /** Whether `forget` erased an actor after a turn began. SessionErasure sets it. */
  isForgotten: Recorder['isForgotten'] = async () => false
  /** Extracts facts from turns. Extraction sets it. */
  extract: Extract | null = null
  /** The owner's decisions; the defaults until `open`. */
  policy = new MemoryPolicy()
  readonly #clients = new Clients(this.settings.recallTimeoutSeconds)
  #collections: readonly MemoryCollection[] | null = null
  #recorder: Recorder | null = null
  #closing: Promise<void> | null = null

  constructor(settings: MemorySettings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    this.declarations = before.find((capability) => capability instanceof Declarations)!
  }

  get collections(): readonly MemoryCollection[] {
    return (this.#collections ??= this.declarations.project
      .used()
      .flatMap((collection) => this.#build(collection) ?? []))
  }

  get recorder(): Recorder {
    const isForgotten: Recorder['isForgotten'] = (...values) => this.isForgotten(...values)
    return (this.#recorder ??= new Recorder(this.writers, isForgotten, this.extract, this.policy))
  }

  /** The collections that turns search. */
  get readers(): MemoryCollection[] {
    return this.collections.filter(({ isRead }) => isRead)
  }

  /** The collections that record turns. */
  get writers(): MemoryCollection[] {
    return this.collections.filter(({ isWritable }) => isWritable)
  }

  override actorRequired(): boolean {
    return this.collections.length > 0
  }

  override isBusy(): boolean {
    return this.recorder.isWaiting
  }

  override retentionNotice(): string {
    const contacts = this.writers.map(({ memory }) => memory.contact)
    return contacts.map((contact) => `Its texts are recorded in ${contact}.`).join(' ')
  }

  /** The reason why the memories cannot work with these settings, or ''. */
  get problem(): string {
    return this.collections.map(problemOf).find(Boolean) ?? ''
  }

  override check(): Finding[] {
    if (this.declarations.hasErrors) return []
    const { problem } = this
    const findings = problem ? [diagnostic('SET-PROJECT_ID', `${problem}.`, 'warning')] : []
    return [...findings, ...checkPolicy(this.declarations.project, this.settings.secretsPrefix)]
  }

  override async ping(): Promise<Finding[]> {
    const { project } = this.declarations
    const checked = checkResources(project, this.collections, this.settings.projectId)
    return checked.finally(() => this.#clients.close())
  }

  override describe(): string[] {
    return this.collections.map(({ memory }) => {
      const verb = memory instanceof LocalMemory ? 'in' : 'contacts'
      return `Long-term memory: ${verb} ${memory.contact}`
    })
  }

  /** Add memories and memory tools to the turn's agent. Throws AgentError for invalid actors. */
  override prepare(turn: Turn, options: Options): void {
    const { actor, sessionId } = turn
    if (this.actorRequired() && !actor) throw new AgentError('actor_required')
    if (this.actorRequired() && actor?.includes('/')) throw new AgentError('invalid_actor', SLASH)
    const memoryTurn = this.turnOf(actor ?? '', sessionId, turn)
    this.turns.set(turn, memoryTurn)
    turnStorage.enterWith(memoryTurn)
    addMemory(this, memoryTurn, options)
  }

  /** Return a MemoryTurn for an actor and session. */
  turnOf(actor: string, sessionId: string, notes: Notes): MemoryTurn {
    const { projectId, recallTimeoutSeconds: seconds, recallOverfetch: overfetch } = this.settings
    const { policy } = this
    const options = { writers: this.writers.map(({ id }) => id), seconds, overfetch, policy }
    const turn = new MemoryTurn({ actor, sessionId, projectId }, this.readers, options, notes)
    turn.stores.push(...storesFor(turn, this.settings))
    return turn
  }

  override committed(turn: Turn, messages: unknown[]): void {
    const memoryTurn = this.turns.get(turn)
    if (memoryTurn) record(this, memoryTurn, messages)
  }

  /** Return the project's records and events in all memories. */
  async projectStocks(unshared: readonly string[]): Promise<Stock[]> {
    const { projectId } = this.settings
    const stocks = this.collections.flatMap((collection) => {
      const { id } = collection
      return stocksOf(collection, projectId, unshared.includes(id), this.#beside(id))
    })
    const own = ownStoreStocks(await policyOf(this.load), projectId)
    return [...stocks, ...localStocks(), ...this.#unreadStocks(), ...own]
  }

  /** Return the namespaces of other collections in the same memory, by their files. */
  #beside(collectionId: string): string[] {
    const { collections } = this.declarations.project
    const refs = secretRefs(collections.get(collectionId)!.backend)
    return [...collections.values()]
      .filter(({ collection_id: id }) => id !== collectionId)
      .filter(({ backend }) => isDeepStrictEqual(secretRefs(backend), refs))
      .flatMap((it) => Object.keys(this.#build(it)?.namespaces ?? {}))
  }

  /** Return the memories whose secrets are not set: other stocks have only their files. */
  #unreadStocks(): Stock[] {
    const { collections } = this.declarations.project
    return this.collections.flatMap(({ id }) => {
      const [unset] = unsetVariables(this.settings, collections.get(id)!)
      return unset ? [unread(`events and records of collection ${id}`, 'its memory', unset)] : []
    })
  }

  /** Record the session's batched turns now. */
  override sessionEnded(sessionId: string): void {
    this.recorder.flush(sessionId)
  }

  /** Record the texts of a committed turn, and its added texts. */
  record(turn: MemoryTurn, texts: readonly Utterance[]): void {
    turn.isOver = true
    this.recorder.record(turn.identity, [...texts, ...turn.added], turn.startedAt)
  }

  /** Ends an actor's sessions. SessionErasure replaces it. */
  eraseSessions: (report: Report, candidates: string[]) => Promise<void> = async (report) => {
    report.notes.push('no session store was searched: sessions are in process memory', LATER)
  }

  /** Check the writers, and create clients. Throws AgentError if the settings are wrong. */
  override async open(): Promise<void> {
    this.policy = await policyOf(this.load)
    try {
      if (this.problem) throw new MemoryUnavailable(this.problem)
      const names = new Map<string, string>()
      for (const collection of this.collections) {
        const { id, memory, isWritable } = collection
        const place = isWritable ? await memory.writesTo() : ''
        const other = names.get(place)
        if (place && other) {
          const problem = `collections ${other} and ${id} write to the same memory`
          throw new MemoryUnavailable(`${problem}, which would record each turn twice`)
        }
        names.set(place, id)
        await memory.warmUp(collection)
      }
    } catch (error) {
      if (!(error instanceof MemoryUnavailable)) throw error
      throw new AgentError('store_unavailable', '', `${error.message}.`)
    }
  }

  /** Record waiting turns within SHUTDOWN_GRACE_SECONDS, and stop accepting turns. */
  override close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    await this.#recorder?.close(this.settings.shutdownGraceSeconds)
    await this.#clients.close()
  }

  #build(collection: Collection): MemoryCollection | null {
    const { project, secrets } = this.declarations
    const { collection_id: id, meta, scope, writeback } = collection
    const kind = KINDS[collection.backend.type]
    if (!kind) return null
    const backend = collection.backend as MemoryConfig
    const [unset] = unsetVariables(this.settings, collection)
    const hasDefault = unset || collection.backend.type !== 'agentcore_memory'
    const defaults = { [defaultTemplate(scope.lifetime)]: DEFAULT }
    const namespaces = backend.retrieval_config ?? (hasDefault ? defaults : null)
    const templates = Object.keys(namespaces ?? {})
    const needsProject = scope.lifetime === 'project' || templates.join().includes('{projectId}')
    const memory = unset
      ? new LocalMemory(id, templates, `, until ${unset} is set`)
      : kind.open(collection, secrets, this.#clients)
    return {
      id,
      description: shorten(meta.description),
      lifetime: scope.lifetime,
      memory: this.decorate(memory),
      isRead: project.reads.includes(id),
      isWritable: project.isWritable(collection),
      isErasable: writeback.enabled,
      batchSize: backend.batch_size ?? BATCH_SIZE,
      extracts: backend.extraction === 'model',
      needsProject,
      projectId: needsProject ? this.settings.projectId : null,
      namespaces,
    }
  }
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

/** Return a description on one line, cut at the limit but not inside a surrogate pair. */
function shorten(description: string): string {
  const line = description.trim().replace(/\s+/g, ' ')
  return line.slice(0, MAX_DESCRIPTION_CHARS).toWellFormed()
}
