// Connect long-term memory to the AI SDK: the tools of a turn, and a model with memories.

import { asSchema, type LanguageModel, tool, wrapLanguageModel } from 'ai'
import type { LanguageModelMiddleware, ModelMessage } from 'ai'
import { z } from 'zod'

import type { Options } from '../capability.ts'
import { isBlank } from '../contract.ts'
import { type Call, OfflineModel, type Part } from '../echo_model.ts'
import type { MemoryCollection, Utterance } from './base.ts'
import type { Hit } from './hits.ts'
import { linesOf, type MemoryTurn, type Injection } from './recall.ts'
import type { Memories } from './record.ts'
import type { MemorySettings } from './settings.ts'
import { show } from './show.ts'

const SEARCH = 'Search long-term memory for facts, preferences or context of earlier conversations.'
const ADD = 'Add facts, preferences or decisions that are worth recalling in later conversations.'

const STORES = z.array(z.string()).optional().describe('Names of stores; omit to use all')
const SEARCH_INPUT = asSchema(
  z.object({
    query: z.string().describe('The text to search for'),
    maxSearchResults: z
      .number()
      .int()
      .min(1)
      .optional()
      .describe('Maximum number of results per store'),
    stores: STORES,
  }),
)
const ADD_INPUT = asSchema(
  z.object({
    entries: z.array(z.string()).describe('The texts to add when the turn commits'),
    stores: STORES,
  }),
)

type Wrapped = Parameters<typeof wrapLanguageModel>[0]['model']

/** Add memories and memory tools to the options of the turn's agent. */
export function addMemory(longTerm: Memories, turn: MemoryTurn, options: Options): void {
  const { readers, settings, writers } = longTerm
  const hasAddTool = settings.addMemoryTool > 0 && writers.length > 0
  if (readers.length === 0 && !hasAddTool) return
  const { searchTool: name } = turn.policy
  if (readers.length > 0 && name !== null) options.tools[name] = searchTool(turn, readers)
  if (hasAddTool) options.tools.add_memory = addTool(turn, writers)
  options.model = withMemory(options.model, turn)
}

/** Record the texts of a committed turn, without tool results. */
export function record(longTerm: Memories, turn: MemoryTurn, messages: unknown[]): void {
  longTerm.record(turn, utterancesOf(messages as ModelMessage[]))
}

/** Return the owner's stores for a turn: always empty, because the AI SDK has no stores. */
export function storesFor(_turn: MemoryTurn, _settings: MemorySettings): MemoryTurn['stores'] {
  return []
}

/** Return the texts of messages, without tool results. */
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

/** Return a model that receives the memories of its turn. */
function withMemory(model: LanguageModel, turn: MemoryTurn): LanguageModel {
  const injectionFor = ({ prompt: messages }: Call) => {
    const call = { prompt: promptOf(messages), said: lastStepIn(messages), messages }
    return show(turn, call, (query) => turn.search(query))
  }
  if (model.constructor === OfflineModel) return new RecallingOfflineModel(injectionFor)
  const middleware: LanguageModelMiddleware = {
    async transformParams({ params }) {
      const { text } = await injectionFor(params)
      params.abortSignal?.throwIfAborted()
      return text ? { ...params, prompt: withText(params, text) } : params
    },
  }
  // The SDK also accepts a model's name, but `buildModel` never returns a name.
  return wrapLanguageModel({ model: model as Wrapped, middleware })
}

/** The echo model of a turn; its reply ends with the memories and the notice. */
class RecallingOfflineModel extends OfflineModel {
  readonly #injectionFor: (call: Call) => Promise<Injection>

  constructor(injectionFor: (call: Call) => Promise<Injection>) {
    super()
    this.#injectionFor = injectionFor
  }

  override async *answer(options: Call): AsyncGenerator<Part> {
    const lines = linesOf(await this.#injectionFor(options))
    for await (const part of super.answer(options)) {
      if (part.type === 'text-end') {
        for (const delta of lines) yield { type: 'text-delta', id: part.id, delta }
      }
      yield part
    }
  }
}

/** Return the text of the last user message. */
function promptOf(messages: Call['prompt']): string {
  return textOf(messages.findLast(({ role }) => role === 'user'))
}

/** Return the text of the model's previous step in this turn, or ''. */
function lastStepIn(messages: Call['prompt']): string {
  const place = messages.findLastIndex(({ role }) => role === 'user')
  return textOf(messages.slice(place + 1).findLast(({ role }) => role === 'assistant'))
}

function textOf(message: Call['prompt'][number] | undefined): string {
  const parts = message && message.role !== 'system' ? message.content : []
  return parts.map((part) => (part.type === 'text' ? part.text : '')).join('')
}

/** Return a copy of the messages with added text, which never becomes part of the session. */
function withText({ prompt }: Call, added: string): Call['prompt'] {
  const place = prompt.findLastIndex(({ role }) => role === 'user')
  return prompt.map((message, index) => {
    if (index !== place || message.role !== 'user') return message
    const text = { type: 'text' as const, text: `\n\n${added}` }
    return { ...message, content: [...message.content, text] }
  })
}

/** Return a tool's description with the names and descriptions of its stores. */
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
