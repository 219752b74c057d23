// Long-term memory as the turns use it: who somebody is, what is recalled, what is recorded.

import { AsyncLocalStorage } from 'node:async_hooks'

import { AgentError, type Ask, isBlank } from '../contract.ts'
import type { Settings } from '../settings.ts'
import { AgentCore } from './agentcore.ts'
import type { Item } from './memories.ts'
import type { Who } from './namespaces.ts'
import type { Options } from './options.ts'
import type { Project } from './project.ts'
import { type Found, Recall } from './recall.ts'
import { Recorder } from './recorder.ts'
import type { Secrets } from './secrets.ts'
import { buildTopology, checkTopology, type Topology } from './topology.ts'

const SLASH = 'An actor id has no / here: the namespaces of two people could meet.'

/** What a turn knows of long-term memory; what it adds is remembered when it commits. */
export class Turn {
  readonly who: Who
  readonly recall: Recall
  readonly isWritable: boolean
  readonly added: string[] = []
  isOver = false

  constructor(who: Who, recall: Recall, isWritable: boolean) {
    this.who = who
    this.recall = recall
    this.isWritable = isWritable
  }

  /** Remember a text, if the turn commits. Throws RangeError for a blank one, and Error. */
  add(text: string): void {
    if (this.isOver) throw new Error('The turn is over.')
    this.added.push(checked(text, this.isWritable))
  }
}

/** The turn of the task that runs it, and of its tools. */
export const current = new AsyncLocalStorage<Turn>()

/** The long-term memories of a project; without collections of that kind it does nothing. */
export class LongTerm {
  readonly clients: Topology['clients']
  readonly memories: Topology['memories']
  readonly readers: Topology['readers']
  readonly projectId: string | null
  readonly recorder: Recorder
  readonly actorRequired: boolean
  readonly isWritable: boolean
  readonly #built: Topology
  readonly #seconds: number
  readonly #turns = new WeakMap<Ask, Turn>()

  /** Throws Unavailable for what cannot work; the text is for the owner. */
  constructor(settings: Settings, options: Options, project: Project, secrets: Secrets) {
    this.#built = buildTopology(settings, options, project, secrets)
    this.clients = this.#built.clients
    this.memories = this.#built.memories
    this.readers = this.#built.readers
    this.projectId = options.projectId
    this.#seconds = options.recallTimeoutSeconds
    this.recorder = new Recorder(this.#built.writers)
    this.actorRequired = this.memories.size > 0
    this.isWritable = this.#built.writers.length > 0
  }

  /** Whether something of a committed turn is still to be recorded. */
  get isWaiting(): boolean {
    return this.recorder.isWaiting
  }

  /** Look up which memories are meant. Throws Unavailable when two collections write to one. */
  async check(): Promise<void> {
    await checkTopology(this.#built)
  }

  /** Begin to import the clients, so that the first turn need not wait for them. */
  prepare(): void {
    for (const memory of this.memories.values()) {
      if (memory instanceof AgentCore) this.clients.prepare(memory.region)
    }
  }

  /** Where each collection is, a line each. */
  contacts(): string[] {
    return [...this.memories.values()].map((memory) => {
      const how = memory instanceof AgentCore ? 'contacts' : 'in'
      return `Long-term memory: ${how} ${memory.contact}`
    })
  }

  /** Who asks. Throws AgentError: `actor_required` and `invalid_actor`. */
  who({ actor, sessionId }: Ask): Who {
    if (this.actorRequired && !actor) throw new AgentError('actor_required')
    if (this.actorRequired && actor?.includes('/')) throw new AgentError('invalid_actor', SLASH)
    return { actor: actor ?? '', sessionId, projectId: this.projectId }
  }

  /** What the turn of this task knows. Throws as `who` does. */
  begin(ask: Ask): Turn {
    const who = this.who(ask)
    const turn = new Turn(who, this.#recall(who), this.isWritable)
    this.#turns.set(ask, turn)
    current.enterWith(turn)
    return turn
  }

  /** The turn that began for this. */
  turnOf(ask: Ask): Turn | undefined {
    return this.#turns.get(ask)
  }

  /** Hear what a committed turn said; what it added is remembered with it. */
  record(turn: Turn, spoken: readonly Item[]): void {
    const { who, added } = turn
    turn.isOver = true
    this.recorder.record(who, [...spoken, ...added.map((text): Item => ['USER', text])])
  }

  /** What is remembered, outside turns. */
  async search(who: Who, query: string): Promise<Found[]> {
    return await this.#recall(who).search(query)
  }

  /** Remember a text, outside turns. Throws RangeError for a blank one, and Error. */
  add(who: Who, text: string): void {
    this.recorder.record(who, [['USER', checked(text, this.isWritable)]])
  }

  /** Record what waits within this time, and take no more. */
  async close(seconds: number): Promise<void> {
    await this.recorder.close(seconds)
    await this.clients.close()
  }

  #recall(who: Who): Recall {
    return new Recall(who, this.readers, this.#seconds)
  }
}

function checked(text: string, isWritable: boolean): string {
  if (isBlank(text)) throw new RangeError('A blank text cannot be remembered.')
  if (isWritable) return text
  throw new Error('This agent has no long-term memory that it may write to.')
}
