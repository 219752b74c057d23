// A store of the owner's in a turn: bounded when it is searched, and told what was committed.

import { type ExtractionResult, type MemoryEntry, ModelExtractor } from '@strands-agents/sdk'
import type { MemoryStore, MessageData, Model, SearchOptions, Tool } from '@strands-agents/sdk'

import { describe, log } from '../contract.ts'
import { Unavailable } from './backends.ts'
import { bounded } from './bounded.ts'

const MOST = 5 // entries, if the store does not say
const LONGEST_QUERY = 10_000 // UTF-16 units, as for the collections
let told = 0 // messages: a store may be shared by turns, and knows them by their numbers

/**
 * What the SDK sees of a store: it is read. That it is written to is not the SDK's business, which
 * would do so for turns that fail, too.
 */
export class Owned implements MemoryStore {
  readonly name: string
  readonly description: string
  readonly maxSearchResults: number
  readonly writable = false
  readonly store: MemoryStore
  readonly #seconds: number
  #isReady = false

  constructor(store: MemoryStore, seconds: number) {
    const { name, description = '', maxSearchResults = MOST } = store
    this.name = name
    this.description = description
    this.maxSearchResults = maxSearchResults
    this.store = store
    this.#seconds = seconds
  }

  /** What fits a query. Never throws, and ends in time. */
  async search(query: string, options: SearchOptions = {}): Promise<MemoryEntry[]> {
    const wanted = Math.min(this.maxSearchResults, options.maxSearchResults ?? MOST)
    try {
      return await bounded(this.#seconds, async () => {
        await this.#prepare()
        const given = { maxSearchResults: wanted }
        return await this.store.search(query.slice(-LONGEST_QUERY), given)
      })
    } catch (error) {
      const why = error instanceof Unavailable ? error.message : describe(error)
      log('WARNING', `nothing recalled from store ${this.name}: ${why}`)
      return []
    }
  }

  /** The tools of the store. */
  getTools(): Tool[] {
    return this.store.getTools?.() ?? []
  }

  /** What tells the store the messages of a turn, and again after a failure only the rest. */
  telling(messages: MessageData[], model: Model): () => Promise<unknown> {
    const { extraction } = this.store
    let extractor = typeof extraction === 'object' ? extraction.extractor : undefined
    if (!this.store.addMessages) extractor ??= new ModelExtractor()
    const sequenceNumbers = messages.map(() => told++)
    let facts: ExtractionResult[] | null = null
    return async () => {
      await this.#prepare()
      if (!extractor) return await this.store.addMessages!(messages, { sequenceNumbers })
      facts ??= await extractor.extract(messages, { defaultModel: model })
      for (let fact = facts[0]; fact; fact = facts[0]) {
        await this.store.add!(fact.content, fact.metadata)
        facts.shift()
      }
    }
  }

  async #prepare(): Promise<void> {
    if (!this.#isReady) await this.store.initialize?.()
    this.#isReady = true
  }
}
