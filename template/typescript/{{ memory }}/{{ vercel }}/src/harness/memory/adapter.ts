// Long-term memory for an agent of the AI SDK: its tools, and what its model is shown.

import { asSchema, type LanguageModel, tool, wrapLanguageModel } from 'ai'
import type { LanguageModelMiddleware, ModelMessage } from 'ai'
import { z } from 'zod'

import type { Options } from '../capability.ts'
import { isBlank } from '../contract.ts'
import { type Call, OfflineModel, type Part } from '../echo_model.ts'
import type { MemoryCollection, Utterance } from './base.ts'
import type { Hit } from './hits.ts'
import { linesOf, type MemoryTurn, type Shown } from './recall.ts'
import type { Memories } from './record.ts'
import type { MemorySettings } from './settings.ts'
import { show } from './show.ts'

const SEARCH = 'Search long-term memory for facts, preferences or context of earlier conversations.'
const ADD = 'Add facts, preferences or decisions that are worth recalling in later conversations.'

const STORES = z.array(z.string()).optional().describe('Stores by name; all if left out')
const SEARCH_INPUT = asSchema(
  z.object({
    query: z.string().describe('What to search for'),
    maxSearchResults: z.number().int().min(1).optional().describe('At most so many of each store'),
    stores: STORES,
  }),
)
const ADD_INPUT = asSchema(
  z.object({
    entries: z.array(z.string()).describe('What to remember, when the turn is committed'),
    stores: STORES,
  }),
)

type Wrapped = Parameters<typeof wrapLanguageModel>[0]['model']

/** Let the agent of a turn recall, and add memories. */
export function addMemory(longTerm: Memories, turn: MemoryTurn, options: Options): void {
  const { readers, settings, writers } = longTerm
  const adds = settings.addMemoryTool > 0 && writers.length > 0
  if (readers.length === 0 && !adds) return
  const { searchTool: name } = turn.policy
  if (readers.length > 0 && name !== null) options.tools[name] = searchTool(turn, readers)
  if (adds) options.tools.add_memory = addTool(turn, writers)
  options.model = withMemory(options.model, turn)
}

/** Record the messages of a committed turn. */
export function record(longTerm: Memories, turn: MemoryTurn, messages: unknown[]): void {
  longTerm.record(turn, utterancesOf(messages as ModelMessage[]))
}

/** Return the owner's stores for a turn: the AI SDK has none. */
export function storesFor(_turn: MemoryTurn, _settings: MemorySettings): MemoryTurn['stores'] {
  return []
}

/** The texts of messages, without those of tools. */
function utterancesOf(messages: readonly ModelMessage[]): Utterance[] {
  return messages.flatMap(({ role, content }) => {
    if (role !== 'user' && role !== 'assistant') return []
    const parts = typeof content === 'string' ? [{ type: 'text', text: content } as const] : content
    return parts.flatMap((part): Utterance[] => {
      if (part.type !== 'text' || isBlank(part.text)) return []
      return [[role === 'user' ? 'USER' : 'ASSISTANT', part.text]]
    })
  })
}

/** The model of one turn, which each of its calls shows what is remembered. */
function withMemory(model: LanguageModel, turn: MemoryTurn): LanguageModel {
  const shownTo = ({ prompt: messages }: Call) => {
    const call = { prompt: promptOf(messages), said: saidIn(messages), messages }
    return show(turn, call, (query) => turn.search(query))
  }
  if (model.constructor === OfflineModel) return new RecallingOfflineModel(shownTo)
  const middleware: LanguageModelMiddleware = {
    async transformParams({ params }) {
      const { text } = await shownTo(params)
      params.abortSignal?.throwIfAborted()
      return text ? { ...params, prompt: withText(params, text) } : params
    },
  }
  // For the SDK a model could also be a name, which no `buildModel` returns.
  return wrapLanguageModel({ model: model as Wrapped, middleware })
}

/** The offline model of one turn: it says what it is shown after all else. */
class RecallingOfflineModel extends OfflineModel {
  readonly #shownTo: (call: Call) => Promise<Shown>

  constructor(shownTo: (call: Call) => Promise<Shown>) {
    super()
    this.#shownTo = shownTo
  }

  override async *answer(options: Call): AsyncGenerator<Part> {
    const lines = linesOf(await this.#shownTo(options))
    for await (const part of super.answer(options)) {
      if (part.type === 'text-end') {
        for (const delta of lines) yield { type: 'text-delta', id: part.id, delta }
      }
      yield part
    }
  }
}

/** The text of the last user message. */
function promptOf(messages: Call['prompt']): string {
  return textOf(messages.findLast(({ role }) => role === 'user'))
}

/** The text of the model's last step in this turn. */
function saidIn(messages: Call['prompt']): string {
  const place = messages.findLastIndex(({ role }) => role === 'user')
  return textOf(messages.slice(place + 1).findLast(({ role }) => role === 'assistant'))
}

function textOf(message: Call['prompt'][number] | undefined): string {
  const parts = message && message.role !== 'system' ? message.content : []
  return parts.map((part) => (part.type === 'text' ? part.text : '')).join('')
}

/** A copy of the messages with a text: it never becomes part of the session. */
function withText({ prompt }: Call, added: string): Call['prompt'] {
  const place = prompt.findLastIndex(({ role }) => role === 'user')
  return prompt.map((message, index) => {
    if (index !== place || message.role !== 'user') return message
    const text = { type: 'text' as const, text: `\n\n${added}` }
    return { ...message, content: [...message.content, text] }
  })
}

/** Return the description of a tool with those of its stores. */
function withStores(description: string, stores: readonly MemoryCollection[]): string {
  const lines = stores.map((store) => `- ${store.id}: ${store.description}`)
  return `${description}\n\nStores:\n${lines.join('\n')}`
}

function searchTool(turn: MemoryTurn, readers: readonly MemoryCollection[]) {
  return tool({
    description: withStores(turn.policy.searchDescription ?? SEARCH, readers),
    inputSchema: SEARCH_INPUT,
    execute: async ({ query, ...options }) => (await turn.find(query, options)).map(entryOf),
  })
}

function addTool(turn: MemoryTurn, writers: readonly MemoryCollection[]) {
  return tool({
    description: withStores(ADD, writers),
    inputSchema: ADD_INPUT,
    execute: ({ entries, stores }) => {
      for (const text of entries) turn.add(text, { stores })
      return { stored: entries.length }
    },
  })
}

function entryOf({ text, collection, id, score, namespace, createdAt }: Hit) {
  const metadata = { _id: id, _score: score, _namespaces: [namespace], _createdAt: createdAt }
  return { content: text, storeName: collection, metadata }
}
