// Long-term memory for an agent of the AI SDK: its tools, and what its model is shown.

import { type LanguageModel, type LanguageModelMiddleware, tool, wrapLanguageModel } from 'ai'
import type { ModelMessage } from 'ai'
import { z } from 'zod'

import { TOOLS } from '../agent.ts'
import { type Call, OfflineModel, type Part } from '../offline_model.ts'
import type { LongTerm, Turn } from './long_term.ts'
import { spoken } from './messages.ts'
import type { Options } from './options.ts'
import { block, type Found } from './recall.ts'

const SEARCH = 'Search long-term memory for facts, preferences or context of earlier conversations.'
const ADD = 'Add facts, preferences or decisions that are worth recalling in later conversations.'

type Wrapped = Parameters<typeof wrapLanguageModel>[0]['model']

/** The offline model of one turn: it says what it remembers after all else. */
class Remembering extends OfflineModel {
  readonly #turn: Turn

  constructor(turn: Turn) {
    super()
    this.#turn = turn
  }

  override async *answer(options: Call): AsyncGenerator<Part> {
    const found = await this.#turn.recall.once(promptOf(options))
    for await (const part of super.answer(options)) {
      if (part.type === 'text-end') {
        for (const one of found) {
          yield { type: 'text-delta', id: part.id, delta: ` I remember: "${one.text}"` }
        }
      }
      if (part.type === 'tool-call') {
        const { text } = JSON.parse(part.input)
        if (part.toolName === 'search_memory') part.input = JSON.stringify({ query: text })
        if (part.toolName === 'add_memory') part.input = JSON.stringify({ entries: [text] })
      }
      yield part
    }
  }
}

/** Begin to make what the first turn would have to wait for. */
export function prepare(longTerm: LongTerm): void {
  longTerm.prepare()
}

/** What the model of a turn is called with. */
export function agentOptions(
  longTerm: LongTerm,
  turn: Turn,
  options: Options,
  model: LanguageModel,
): object {
  const reads = longTerm.readers.length > 0
  const adds = options.addMemoryTool > 0 && longTerm.isWritable
  if (!reads && !adds) return {}
  const more = { ...(reads && { search_memory: searching(turn) }), ...(adds && adding(turn)) }
  return { model: withMemory(model, turn), tools: { ...TOOLS, ...more } }
}

/** Hear what a committed turn added. */
export function record(
  longTerm: LongTerm,
  turn: Turn,
  added: unknown[],
  _model: LanguageModel,
): void {
  longTerm.record(turn, spoken(added as ModelMessage[]))
}

/** The model of one turn: it is shown what is remembered, in each of its calls. */
function withMemory(model: LanguageModel, turn: Turn): LanguageModel {
  if (model.constructor === OfflineModel) return new Remembering(turn)
  const middleware: LanguageModelMiddleware = {
    async transformParams({ params }) {
      const recalled = block(await turn.recall.once(promptOf(params)))
      params.abortSignal?.throwIfAborted()
      return recalled ? { ...params, prompt: shown(params, recalled) } : params
    },
  }
  // For the SDK a model could also be a name, which no `buildModel` returns.
  return wrapLanguageModel({ model: model as Wrapped, middleware })
}

/** What the user said last. */
function promptOf({ prompt }: Call): string {
  const last = prompt.findLast(({ role }) => role === 'user')
  const parts = last?.role === 'user' ? last.content : []
  return parts.map((part) => (part.type === 'text' ? part.text : '')).join('')
}

/** A copy of the messages: what is remembered is never part of the session. */
function shown({ prompt }: Call, recalled: string): Call['prompt'] {
  const place = prompt.findLastIndex(({ role }) => role === 'user')
  return prompt.map((message, index) => {
    if (index !== place || message.role !== 'user') return message
    const text = { type: 'text' as const, text: `\n\n${recalled}` }
    return { ...message, content: [...message.content, text] }
  })
}

function searching({ recall }: Turn) {
  const inputSchema = z.object({ query: z.string().describe('What to search for') })
  const execute = async ({ query }: { query: string }) => (await recall.search(query)).map(entryOf)
  return tool({ description: SEARCH, inputSchema, execute })
}

function adding(turn: Turn) {
  const inputSchema = z.object({ entries: z.array(z.string()).describe('What to remember') })
  const execute = ({ entries }: { entries: string[] }) => {
    for (const text of entries) turn.add(text)
    return { stored: entries.length }
  }
  return { add_memory: tool({ description: ADD, inputSchema, execute }) }
}

function entryOf({ text, collection, id, score, namespace, createdAt }: Found) {
  const metadata = { _id: id, _score: score, _namespaces: [namespace], _createdAt: createdAt }
  return { content: text, storeName: collection, metadata }
}
