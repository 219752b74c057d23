// Connect long-term memory to Strands: the memory manager of a turn and its stores.

import {
  type ExtractionResult,
  InvokeModelStage,
  MemoryManager,
  type MemoryEntry,
  Message,
  ModelExtractor,
  TextBlock,
} from '@strands-agents/sdk'
import type { InvokeModelContext, LocalAgent, MemoryManagerConfig } from '@strands-agents/sdk'
import type { MemoryStore, MessageData, Model, ModelStreamEvent } from '@strands-agents/sdk'
import type { SearchOptions, StreamOptions, Tool } from '@strands-agents/sdk'

import type { Options } from '../capability.ts'
import { isBlank } from '../contract.ts'
import { startTimer } from '../deadline.ts'
import { log } from '../log.ts'
import { OfflineModel } from '../echo_model.ts'
import { bounded, describeFailure, isFor, locateFailure, MemoryRefused } from './base.ts'
import type { MemoryCollection, Metadata, Utterance } from './base.ts'
import type { AddOptions, Failures, Hit } from './hits.ts'
import { linesOf, MAX_QUERY_CHARS, type MemoryTurn } from './recall.ts'
import { MAX_CALLS, type Memories } from './record.ts'
import type { MemorySettings } from './settings.ts'
import { show } from './show.ts'

const MAX_ENTRIES = 10_000 // effectively unlimited: files and stores set the limits
const DEFAULT_RESULTS = 5 // for an owner's store without a limit

const models = new WeakMap<MemoryTurn, Model>()
type Remember = (text: string, options: AddOptions) => void
type IsErased = () => Promise<boolean> // whether `forget` erased the actor of a turn

let sequence = 0 // unique message numbers: turns may share a store

/** Add the memory manager to the options of the turn's agent. */
export function addMemory(longTerm: Memories, turn: MemoryTurn, options: Options): void {
  const { readers, settings, writers } = longTerm
  const { model } = options
  models.set(turn, model)
  const targets = settings.addMemoryTool > 0 ? writers : []
  const stores: MemoryStore[] = [...new Set([...readers, ...targets])].map(
    (collection) => new CollectionStore(collection, turn, targets.includes(collection)),
  )
  stores.push(...guardedStores(turn))
  if (stores.length === 0) return
  const { searchTool: name, searchDescription: description } = turn.policy
  const searchToolConfig = name !== null && { name, ...(description !== null && { description }) }
  const addToolConfig = stores.some(({ writable }) => writable)
  const config = { stores, searchToolConfig, addToolConfig, injection: false }
  const memoryManager = new TurnManager(config, turn)
  options.memoryManager = memoryManager
  if (model.constructor === OfflineModel) options.model = new RecallingOfflineModel(memoryManager)
}

/** Record a committed turn: its texts in collections, its messages in the owner's stores. */
export function record(longTerm: Memories, turn: MemoryTurn, newMessages: unknown[]): void {
  const messages = newMessages as Message[]
  longTerm.record(turn, utterancesOf(messages))
  const all = messages.map((message) => message.toJSON())
  const model = models.get(turn)!
  const isErased = () => longTerm.recorder.isForgotten(turn.identity.actor, turn.startedAt)
  for (const guarded of guardedStores(turn).filter(({ store }) => store.writable)) {
    const name = `store ${guarded.name}`
    const size = Buffer.byteLength(JSON.stringify(all))
    longTerm.recorder.put(name, turn.identity, guarded.recording(all, model, isErased), size)
    const texts = guarded.takesTexts ? turn.added.filter((text) => isFor(text, guarded.name)) : []
    for (const [, text, metadata = {}] of texts) {
      const work = retryable(() => guarded.send(text, metadata, isErased))
      longTerm.recorder.put(name, turn.identity, work, Buffer.byteLength(text))
    }
  }
}

/** Return the owner's stores for a turn. */
export function storesFor(turn: MemoryTurn, settings: MemorySettings): GuardedStore[] {
  const remember = (text: string, options: AddOptions) => turn.add(text, options)
  return turn.policy.ownStores(turn.identity).map((store) => {
    const { addMemoryTool, recallTimeoutSeconds } = settings
    return new GuardedStore(store, recallTimeoutSeconds, addMemoryTool > 0 ? remember : undefined)
  })
}

function guardedStores({ stores }: MemoryTurn): GuardedStore[] {
  return stores.filter((store) => store instanceof GuardedStore)
}

/** Return the texts of messages, without tool results. */
function utterancesOf(messages: readonly Message[]): Utterance[] {
  return messages.flatMap(({ role, content }) =>
    content.flatMap((block): Utterance[] => {
      if (block.type !== 'textBlock' || isBlank(block.text)) return []
      return [[role === 'user' ? 'USER' : 'ASSISTANT', block.text]]
    }),
  )
}

/** A collection as a store of the memory manager; the collection file limits the results. */
class CollectionStore implements MemoryStore {
  readonly name: string
  readonly description: string
  readonly writable: boolean
  readonly #turn: MemoryTurn
  readonly #collections: MemoryCollection[]

  constructor(collection: MemoryCollection, turn: MemoryTurn, writable: boolean) {
    this.name = collection.id
    this.description = collection.description
    this.writable = writable
    this.#turn = turn
    this.#collections = collection.isRead ? [collection] : []
  }

  /** Return matching memories, within a time limit. Never throws. */
  async search(query: string, { maxSearchResults }: SearchOptions = {}): Promise<MemoryEntry[]> {
    const hits = await this.#turn.search(query, this.#collections)
    return hits.slice(0, maxSearchResults).map(({ text, id, score, namespace, createdAt }) => {
      const metadata = { _id: id, _score: score, _namespaces: [namespace], _createdAt: createdAt }
      return { content: text, metadata }
    })
  }

  /** Queue text to store when the turn commits. */
  async add(content: string, metadata?: Metadata): Promise<void> {
    this.#turn.add(content, { stores: [this.name], metadata })
  }
}

/** Return a store's entry as a hit; the score defaults to 0. */
function hitOf({ content, metadata = {} }: MemoryEntry, collection: string): Hit {
  const { _id = '', _score = 0, _namespaces: namespaces = [], _createdAt = '' } = metadata
  const [namespace = ''] = namespaces as string[]
  const details = { id: String(_id), score: Number(_score), createdAt: String(_createdAt) }
  return { text: content, namespace, collection, ...details }
}

/**
 * An owner's store: searches have a time limit, and writes happen after a commit.
 *
 * The memory manager must not write to the store: it would also write failed turns. Text that
 * a model adds goes to `remember` instead.
 */
export class GuardedStore implements MemoryStore {
  readonly name: string
  readonly description: string
  readonly maxSearchResults: number
  readonly writable: boolean
  readonly takesTexts: boolean
  readonly store: MemoryStore
  readonly #seconds: number
  readonly #remember: Remember | undefined
  #isReady = false

  constructor(store: MemoryStore, seconds: number, remember?: Remember) {
    const { name, description = '', maxSearchResults = DEFAULT_RESULTS } = store
    this.name = name
    this.description = description
    this.maxSearchResults = maxSearchResults
    this.store = store
    this.#seconds = seconds
    this.takesTexts = Boolean(store.writable && store.add)
    this.writable = this.takesTexts && remember !== undefined
    this.#remember = remember
  }

  /** Queue text to store when the turn commits. */
  async add(content: string, metadata?: Metadata): Promise<void> {
    this.#remember?.(content, { stores: [this.name], metadata })
  }

  /** Add text to the store now, unless `forget` erased its actor. */
  async send(text: string, metadata: Metadata, isErased?: IsErased): Promise<void> {
    await this.#initialize()
    if (await isErased?.()) return
    const details = Object.keys(metadata).length > 0 ? { ...metadata } : undefined
    await this.store.add!(text, details)
  }

  /** Return matching memories, within a time limit. Never throws. */
  async search(query: string, options: SearchOptions = {}): Promise<MemoryEntry[]> {
    return await this.#search(query, options, {})
  }

  async #search(query: string, options: SearchOptions, failures: Failures): Promise<MemoryEntry[]> {
    const { maxSearchResults: limit = this.maxSearchResults } = options
    const limits = { maxSearchResults: Math.min(this.maxSearchResults, limit) }
    const stop = new AbortController()
    const stopTimer = startTimer(this.#seconds, () => stop.abort())
    try {
      return await bounded(stop.signal, `no answer within ${this.#seconds} s`, async () => {
        await this.#initialize()
        return await this.store.search(query.slice(-MAX_QUERY_CHARS), limits)
      })
    } catch (error) {
      failures[this.name] = describeFailure(error)
      log('WARNING', `could not search store ${this.name}: ${locateFailure(error)}`)
      return []
    } finally {
      stopTimer()
    }
  }

  /** Return the results of a search as hits. Never throws: adds errors to `failures`. */
  async hits(query: string, limit: number | undefined, failures: Failures): Promise<Hit[]> {
    const options = limit === undefined ? {} : { maxSearchResults: limit }
    return (await this.#search(query, options, failures)).map((entry) => hitOf(entry, this.name))
  }

  getTools(): Tool[] {
    return this.store.getTools?.() ?? []
  }

  /**
   * Return a function that records a turn in the store, unless `forget` erased its actor.
   *
   * A retry continues after the last success, and awaits late work instead of repeating it.
   */
  recording(messages: MessageData[], model: Model, isErased: IsErased): () => Promise<unknown> {
    const { extraction } = this.store
    let extractor = typeof extraction === 'object' ? extraction.extractor : undefined
    if (!this.store.addMessages) extractor ??= new ModelExtractor()
    const sequenceNumbers = messages.map(() => sequence++)
    let facts: ExtractionResult[] | null = null
    let calls = 0
    const send = async () => {
      await this.#initialize()
      if (!facts && (await isErased())) return
      if (!extractor) return await this.store.addMessages!(messages, { sequenceNumbers })
      if (!facts) {
        calls++
        try {
          facts = await extractor.extract(messages, { defaultModel: model })
        } catch (error) {
          if (calls < MAX_CALLS) throw error
          throw new MemoryRefused(locateFailure(error))
        }
      }
      // `forget` may have run meanwhile.
      for (let fact = facts[0]; fact && !(await isErased()); fact = facts[0]) {
        await this.store.add!(fact.content, fact.metadata)
        facts.shift()
      }
    }
    return retryable(send)
  }

  async #initialize(): Promise<void> {
    if (!this.#isReady) await this.store.initialize?.()
    this.#isReady = true
  }
}

/** Return a function that retries failed work, and awaits work that is still running. */
function retryable(send: () => Promise<unknown>): () => Promise<unknown> {
  let task: Promise<unknown> | null = null
  return () =>
    (task ??= send().catch((error) => {
      task = null
      throw error
    }))
}

function textOf({ content }: Message): string {
  return content.map((block) => (block.type === 'textBlock' ? block.text : '')).join('')
}

/** The memory manager of a turn: adds memories to each model call. */
class TurnManager extends MemoryManager {
  readonly turn: MemoryTurn

  constructor(config: MemoryManagerConfig, turn: MemoryTurn) {
    super(config)
    this.turn = turn
  }

  /** Add memories to the model calls of an agent. */
  override async initAgent(agent: LocalAgent): Promise<void> {
    await super.initAgent(agent)
    agent.addMiddleware(InvokeModelStage.Input, (context) => this.#show(context))
  }

  async #show(context: InvokeModelContext): Promise<InvokeModelContext> {
    const place = context.messages.findLastIndex(
      ({ role, content }) => role === 'user' && content[0]?.type !== 'toolResultBlock',
    )
    const prompt = context.messages[place]!
    const lastStep = context.messages.slice(place + 1).findLast(({ role }) => role === 'assistant')
    const call = { prompt: textOf(prompt), said: lastStep ? textOf(lastStep) : '' }
    const search = async (query: string) => {
      const entries = await this.search(query, { maxSearchResults: MAX_ENTRIES })
      return this.turn.best(entries.map((entry) => hitOf(entry, entry.storeName ?? '')))
    }
    const { text } = await show(this.turn, { ...call, messages: context.messages }, search)
    if (!text || context.model instanceof RecallingOfflineModel) return context
    // A copy: memories never become part of the session.
    const block = new TextBlock(`\n\n${text}`)
    const extended = new Message({ role: 'user', content: [...prompt.content, block] })
    const messages = context.messages.with(place, extended)
    // In the last message, the model's cache point must precede the memories.
    const isLast = place === messages.length - 1
    const dynamicTrailingBlocks = (context.dynamicTrailingBlocks ?? 0) + Number(isLast)
    return { ...context, messages, dynamicTrailingBlocks }
  }
}

/** The echo model of a turn; its reply ends with the memories and the notice. */
class RecallingOfflineModel extends OfflineModel {
  readonly #manager: TurnManager

  constructor(manager: TurnManager) {
    super()
    this.#manager = manager
  }

  override async *stream(
    messages: Message[],
    options?: StreamOptions,
  ): AsyncIterable<ModelStreamEvent> {
    let name = ''
    for await (const event of super.stream(messages, options)) {
      if (event.type === 'modelContentBlockStartEvent') name = event.start?.name ?? ''
      if (event.type === 'modelContentBlockStopEvent' && !name) {
        for (const text of linesOf(this.#manager.turn.injection)) {
          const delta = { type: 'textDelta' as const, text }
          yield { type: 'modelContentBlockDeltaEvent', delta }
        }
      }
      yield event
    }
  }
}
