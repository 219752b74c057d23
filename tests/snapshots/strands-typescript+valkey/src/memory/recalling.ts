// Long-term memory for an agent of Strands: its memory manager, and what its stores are told.

import { type MemoryEntry, Message, type Model } from '@strands-agents/sdk'
import type { ModelStreamEvent, StreamOptions } from '@strands-agents/sdk'

import { OfflineModel } from '../offline_model.ts'
import { AgentCore } from './agentcore.ts'
import { CollectionStore, readEntry } from './collection_store.ts'
import type { LongTerm, Turn } from './long_term.ts'
import { spoken } from './messages.ts'
import type { Options } from './options.ts'
import { Owned } from './owned.ts'
import { ownStores } from './own_stores.ts'
import { block, type Found } from './recall.ts'

const ALL = 10_000 // entries: how many there are at most, the files say

const owners = new WeakMap<Turn, Owned[]>()

/** The offline model of one turn: it says what it remembers after all else. */
class Remembering extends OfflineModel {
  readonly #found: readonly Found[]

  constructor(found: readonly Found[]) {
    super()
    this.#found = found
  }

  override async *stream(
    messages: Message[],
    options?: StreamOptions,
  ): AsyncIterable<ModelStreamEvent> {
    let name = ''
    for await (const event of super.stream(without(messages, block(this.#found)), options)) {
      if (event.type === 'modelContentBlockStartEvent') name = event.start?.name ?? ''
      if (event.type === 'modelContentBlockStopEvent' && !name) {
        for (const one of this.#found) {
          const delta = { type: 'textDelta' as const, text: ` I remember: "${one.text}"` }
          yield { type: 'modelContentBlockDeltaEvent', delta }
        }
      }
      if (
        event.type === 'modelContentBlockDeltaEvent' &&
        event.delta.type === 'toolUseInputDelta'
      ) {
        const { text } = JSON.parse(event.delta.input)
        if (name === 'search_memory') event.delta.input = JSON.stringify({ query: text })
        if (name === 'add_memory') event.delta.input = JSON.stringify({ entries: [text] })
      }
      yield event
    }
  }
}

/** Begin to make what the first turn would have to wait for. */
export function prepare(longTerm: LongTerm): void {
  longTerm.prepare()
  const isNeeded = [...longTerm.memories.values()].some((memory) => memory instanceof AgentCore)
  if (isNeeded) import('bedrock-agentcore/memory/strands').catch(() => {}) // the turn tells
}

/** What the agent of a turn is made with. */
export function agentOptions(
  longTerm: LongTerm,
  turn: Turn,
  options: Options,
  model: Model,
): object {
  const owned = ownStores(turn.who).map((it) => new Owned(it, options.recallTimeoutSeconds))
  owners.set(turn, owned)
  const adds = options.addMemoryTool > 0 && longTerm.isWritable
  const names = longTerm.readers.map(({ collectionId }) => collectionId)
  if (adds && names.length === 0) names.push(...[...longTerm.memories.keys()].slice(0, 1))
  const collections = names.map((name, index) => {
    const readers = longTerm.readers.filter(({ collectionId }) => collectionId === name)
    return new CollectionStore(name, turn, readers, adds && index === 0)
  })
  const stores = [...collections, ...owned]
  if (stores.length === 0) return {}
  const found: Found[] = []
  const format = ({ entries }: { entries: MemoryEntry[] }) => {
    found.splice(0, found.length, ...best(entries))
    return block(found)
  }
  const manager = { stores, addToolConfig: adds, injection: { maxEntries: ALL, format } }
  const isOffline = model.constructor === OfflineModel
  return { memoryManager: manager, ...(isOffline && { model: new Remembering(found) }) }
}

/** Hear what a committed turn added: the collections are told what was said, the stores all. */
export function record(longTerm: LongTerm, turn: Turn, added: unknown[], model: Model): void {
  const messages = added as Message[]
  longTerm.record(turn, spoken(messages))
  const all = messages.map((message) => message.toJSON())
  for (const one of owners.get(turn) ?? []) {
    if (!one.store.writable) continue
    const size = Buffer.byteLength(JSON.stringify(all))
    longTerm.recorder.put(`store ${one.name}`, one.telling(all, model), size)
  }
}

/** The messages without the block at the end of the last one. */
function without(messages: Message[], block: string): Message[] {
  const last = messages.at(-1)
  const end = last?.content.at(-1)
  if (!last || !block || end?.type !== 'textBlock' || end.text.trim() !== block) return messages
  const said = new Message({ role: last.role, content: last.content.slice(0, -1) })
  return [...messages.slice(0, -1), said]
}

/** What is in all stores, best first, and each text once. */
function best(entries: MemoryEntry[]): Found[] {
  const found = entries.map((entry) => readEntry(entry, entry.storeName ?? ''))
  const texts = new Map<string, Found>()
  for (const one of found.toSorted((some, other) => other.score - some.score)) {
    if (!texts.has(one.text)) texts.set(one.text, one)
  }
  return [...texts.values()]
}
