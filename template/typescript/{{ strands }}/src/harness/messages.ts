// Repairs a model's answers before their calls run, and checks the messages of a turn.

import { createHash, randomBytes } from 'node:crypto'

import { CitationsBlock, ExecuteToolStage, InvokeModelStage } from '@strands-agents/sdk'
import { Message, Model } from '@strands-agents/sdk'
import { TextBlock, ToolResultBlock, ToolUseBlock } from '@strands-agents/sdk'
import type { Agent, AgentStreamEvent, BaseModelConfig, ContentBlock } from '@strands-agents/sdk'
import type { ConcurrentToolExecutor, InvokeModelResult, MessageData } from '@strands-agents/sdk'
import type { JSONValue, ModelStreamEvent, StreamOptions } from '@strands-agents/sdk'
import type { ToolResultContent } from '@strands-agents/sdk'

import { cutTexts } from './models/context_length.ts'
import { AgentError, isBlank } from './contract.ts'
import { abortOf } from './deadline.ts'
import { OfflineModel } from './echo_model.ts'
import { sendable } from './file_parts.ts'
import { log } from './log.ts'
import type { AcceptedTypes } from './models/rejected_files.ts'
import { serialize } from './sessions/sessions.ts'
import type { CoreSettings } from './settings.ts'
import { CALL_ID, INVALID_ARGUMENTS, MAX_QUOTED_CHARS, NAME, tooMany } from './tool_schemas.ts'

// The SDK counts calls by tool name on a plain object: `__proto__` would change all objects.
const CALL_NAME = new RegExp(`^(?!__proto__$)${NAME}$`)

type Execute = ConcurrentToolExecutor['execute']

/** Data of a message with calls, stored in `metadata.custom`. */
export interface Marks {
  /** The id of the answering model, the only reader of its reasoning. */
  model?: string
  /** The provider's extra fields, which it expects back. */
  fields?: Record<string, JSONValue>
  /** Invalid arguments by call id. */
  refused?: Record<string, string>
  /** The ids of calls with invalid names. */
  misnamed?: string[]
}

/** Return the marks of a message. */
export function marksOf({ metadata }: Pick<Message, 'metadata'>): Marks {
  return (metadata?.custom as Marks | undefined) ?? {}
}

/** A model with repaired calls that receives only its own reasoning. */
export class CheckedModel extends Model {
  readonly #model: Model

  constructor(model: Model) {
    super()
    this.#model = model
  }

  updateConfig(config: BaseModelConfig): void {
    this.#model.updateConfig(config)
  }

  getConfig(): BaseModelConfig {
    return this.#model.getConfig()
  }

  async *stream(messages: Message[], options?: StreamOptions): AsyncGenerator<ModelStreamEvent> {
    const model = this.#model.modelId ?? ''
    const sent = readable(messages, model)
    const calls = sent.flatMap(({ content }) => content.filter(isCall))
    const ids = new Set(calls.map(({ toolUseId }) => toolUseId))
    const refused: [string, string][] = []
    const misnamed: string[] = []
    let start: ToolUseBlock | undefined
    let input = ''
    for await (const event of this.#model.stream(sent, options)) {
      if (event.type === 'modelContentBlockStartEvent') {
        if (start) throw new AgentError('model_failed', '', 'a call has no end')
        input = ''
        start = event.start && startOf(event.start, ids)
        if (event.start && !CALL_NAME.test(event.start.name ?? '')) misnamed.push(start!.toolUseId)
        yield start ? startEvent(start) : event
        continue
      }
      if (event.type === 'modelContentBlockDeltaEvent') {
        if (event.delta.type === 'toolUseInputDelta') {
          if (!start) throw new AgentError('model_failed', '', 'arguments outside of a call')
          input += event.delta.input
        }
      }
      if (event.type === 'modelContentBlockStopEvent' && start) {
        if (!isObject(input)) {
          if (!isBlank(input)) refused.push([start.toolUseId, input])
          // A second start makes the SDK drop the invalid arguments, which would fail the turn.
          yield startEvent(start)
          const delta = { type: 'toolUseInputDelta' as const, input: '{}' }
          yield { type: 'modelContentBlockDeltaEvent', delta }
        }
        start = undefined
      }
      if (event.type !== 'modelMessageStopEvent') {
        yield event
        continue
      }
      const fields = event.additionalModelResponseFields as Record<string, JSONValue> | undefined
      const received = refused.map(([id, text]) => [id, text.slice(0, MAX_QUOTED_CHARS)])
      const marks = {
        model,
        ...(fields && { fields }),
        ...(refused.length > 0 && { refused: Object.fromEntries(received) }),
        ...(misnamed.length > 0 && { misnamed }),
      }
      yield { ...event, additionalModelResponseFields: { ...fields, marks } }
    }
  }
}

/** Return the start of a call with a valid name and a new id. */
function startOf(start: { name: string; toolUseId: string }, ids: Set<string>): ToolUseBlock {
  const { name, toolUseId: id, ...others } = start
  const isKept = typeof id === 'string' && CALL_ID.test(id) && !ids.has(id)
  const toolUseId = isKept ? id : randomBytes(5).toString('hex').slice(0, 9) // for Mistral
  ids.add(toolUseId)
  const validName = String(name ?? '')
    .replace(/[^a-zA-Z0-9_-]/g, '_')
    .slice(0, 64)
  return new ToolUseBlock({ ...others, name: validName || '_', toolUseId, input: {} })
}

function startEvent({ name, toolUseId, reasoningSignature }: ToolUseBlock): ModelStreamEvent {
  const signed = reasoningSignature !== undefined && { reasoningSignature }
  const start = { type: 'toolUseStart' as const, name, toolUseId, ...signed }
  return { type: 'modelContentBlockStartEvent', start }
}

function isObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text)
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value)
    return isObject && hasFiniteNumbers(value)
  } catch {
    return false
  }
}

/** Whether all numbers are finite, as JSON requires. */
function hasFiniteNumbers(value: unknown): boolean {
  if (typeof value === 'number') return Number.isFinite(value)
  return typeof value !== 'object' || value === null || Object.values(value).every(hasFiniteNumbers)
}

function isCall(block: ContentBlock): block is ToolUseBlock {
  return block.type === 'toolUseBlock'
}

/**
 * Return messages without the reasoning of other models, with ids that every provider accepts.
 *
 * Older versions and other models stored other ids.
 */
function readable(messages: Message[], model: string): Message[] {
  const callIds = new Set<string>()
  let newIds = new Map<string, string[]>()
  return messages.map((message, index) => {
    const isOwn = marksOf(message).model === model
    const resultIds = new Set(resultsIn(messages[index + 1]))
    const results = newIds
    if (message.role === 'assistant') newIds = new Map()
    const content = message.content.flatMap((block): ContentBlock[] => {
      if (block.type === 'reasoningBlock') return isOwn ? [block] : []
      if (block.type === 'textBlock') return isBlank(block.text) ? [] : [block]
      if (block.type === 'citationsBlock') return textOf(block)
      if (block.type === 'toolResultBlock') {
        const toolUseId = results.get(block.toolUseId)?.shift() ?? block.toolUseId
        return [new ToolResultBlock({ ...block, toolUseId })]
      }
      if (!isCall(block)) return [block]
      if (!resultIds.has(block.toolUseId)) return [] // the provider ran it
      const { name, input, toolUseId: id, reasoningSignature } = block
      const toolUseId = CALL_ID.test(id) && !callIds.has(id) ? id : hashOf(`${callIds.size} ${id}`)
      callIds.add(toolUseId)
      newIds.set(id, [...(newIds.get(id) ?? []), toolUseId])
      const signed = isOwn && reasoningSignature !== undefined && { reasoningSignature }
      return [new ToolUseBlock({ name, input, toolUseId, ...signed })]
    })
    const { role, trackingId, metadata } = message
    const { custom: _, ...others } = metadata ?? {}
    const kept = isOwn ? metadata : others
    return new Message({ role, content, trackingId, ...(kept && { metadata: kept }) })
  })
}

/** Return a stable id, so that the provider's cache hits. */
function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 9)
}

function resultsIn(message?: Message): string[] {
  const { content } = message ?? { content: [] }
  return content.flatMap((block) => (block.type === 'toolResultBlock' ? [block.toolUseId] : []))
}

/** Return the text of citations, which other providers reject. */
function textOf({ content }: CitationsBlock): TextBlock[] {
  const text = content.map((part) => ('text' in part ? part.text : '')).join('')
  return isBlank(text) ? [] : [new TextBlock(text)]
}

/** Repair the answers of an agent's model, and reject invalid calls. */
export function repairAnswers(agent: Agent, settings: CoreSettings, accepted: AcceptedTypes): void {
  agent.addMiddleware(InvokeModelStage, async function* (context, next) {
    const { model } = context
    const checkedModel = model instanceof CheckedModel ? model : new CheckedModel(model)
    const isEcho = model instanceof OfflineModel // which reads files itself
    const messages = isEcho ? context.messages : sendable(context.messages, accepted.types)
    const events = next({ ...context, messages, model: checkedModel })
    const tools = new Set(context.toolSpecs.map(({ name }) => name))
    let marks: Marks = {}
    let step = await events.next()
    try {
      for (; !step.done; step = await events.next()) {
        marks = marksIn(step.value) ?? marks
        yield step.value
      }
    } finally {
      if (!step.done) await events.return(undefined as never)
    }
    return repaired(step.value, marks, tools)
  })
  const slots = new Slots(settings.maxToolsAtOnce)
  agent.addMiddleware(ExecuteToolStage, async function* (context, next) {
    await slots.take(context.cancelSignal)
    try {
      return yield* next(context)
    } finally {
      slots.free()
    }
  })
  const maxCalls = settings.maxToolCalls
  const executor = agent.toolExecutor
  const execute: Execute = async function* (options, input) {
    const { completedToolResults, assistantMessage, toolResultBlocks } = input
    const results = new Map(completedToolResults)
    const count = input.toolUseBlocks.length
    if (count > maxCalls && !completedToolResults) {
      log('WARNING', `model: ${count} calls in one step, at most ${maxCalls} run`)
    }
    for (const result of refusals(assistantMessage, maxCalls)) {
      if (results.has(result.toolUseId)) continue // the turn resumes after an approval
      results.set(result.toolUseId, result)
    }
    for (const call of input.toolUseBlocks.slice(0, maxCalls)) {
      if (!completedToolResults?.has(call.toolUseId)) logRefusal(agent, assistantMessage, call)
    }
    // The SDK skips hooks and interventions for calls with results.
    yield* executor.execute(options, { ...input, completedToolResults: results })
    const blocks = toolResultBlocks.splice(0).map(wellFormed)
    for (const block of blocks) toolResultBlocks.push(cutResult(block, settings.maxResultChars))
  }
  agent.toolExecutor = Object.assign(Object.create(executor), { execute })
}

function marksIn(event: AgentStreamEvent): Marks | undefined {
  if (event.type !== 'modelStreamUpdateEvent') return undefined
  if (event.event.type !== 'modelMessageStopEvent') return undefined
  return (Object(event.event.additionalModelResponseFields) as { marks?: Marks }).marks
}

/** Return an answer to store, with plain text and only the calls to run. */
function repaired(answer: InvokeModelResult, marks: Marks, tools: Set<string>): InvokeModelResult {
  const { message, stopReason } = answer.result
  const isOver = stopReason === 'endTurn' || stopReason === 'stopSequence'
  // In a complete answer, the provider has run the calls of unknown tools.
  const calls = message.content.filter(isCall).filter(({ name }) => !isOver || tools.has(name))
  const content = message.content.flatMap((block): ContentBlock[] => {
    if (block.type === 'citationsBlock') return textOf(block)
    if (block.type === 'textBlock') return isBlank(block.text) ? [] : [block]
    if (isCall(block)) return calls.includes(block) ? [block] : []
    if (block.type !== 'reasoningBlock') return [block]
    const isSigned = Boolean(block.signature ?? block.redactedContent)
    return isSigned && calls.length > 0 ? [block] : [] // providers ignore other reasoning
  })
  const { role, trackingId, metadata } = message
  const custom = { ...metadata?.custom, ...marks } as Record<string, JSONValue>
  const kept = calls.length > 0 ? { ...metadata, custom } : metadata
  const whole = new Message({ role, content, trackingId, ...(kept && { metadata: kept }) })
  const reason = calls.length > 0 ? 'toolUse' : 'endTurn'
  const isReason = isOver || stopReason === 'toolUse'
  const text = serialize(whole)
  const isUnicode = text === JSON.stringify(whole)
  const result = {
    ...answer.result,
    message: isUnicode ? whole : Message.fromJSON(JSON.parse(text) as MessageData),
    stopReason: isReason ? reason : stopReason,
  }
  return { ...answer, result }
}

/** Limits the number of concurrent tools; other calls wait in order. */
class Slots {
  #count: number
  readonly #waiting: (() => void)[] = []

  constructor(count: number) {
    this.#count = count
  }

  /** Wait for a slot. Throws the signal's reason if the turn ends first. */
  async take(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    this.#count -= 1
    if (this.#count >= 0) return
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#waiting.push(resolve)
    await Promise.race([promise, abortOf(signal)])
    signal.throwIfAborted()
  }

  free(): void {
    this.#count += 1
    this.#waiting.shift()?.()
  }
}

/** Yield the error results of rejected calls in a message; at most `maxCalls` may run. */
function* refusals(message: Message, maxCalls: number): Generator<ToolResultBlock> {
  const { refused = {}, misnamed = [] } = marksOf(message)
  const all = new Map(Object.entries(refused))
  const names = new Set(misnamed)
  for (const [index, { toolUseId, name }] of message.content.filter(isCall).entries()) {
    const received = all.get(toolUseId)
    const isOver = index >= maxCalls
    if (received === undefined && !names.has(toolUseId) && !isOver) continue
    const unknown = `Tool '${name}' not found in registry` // the SDK's text
    const why = received === undefined ? unknown : INVALID_ARGUMENTS + received
    const text = isOver ? tooMany(maxCalls) : why
    const content = [new TextBlock(text)]
    yield new ToolResultBlock({ toolUseId, status: 'error', content })
  }
}

function logRefusal(agent: Agent, message: Message, { toolUseId: id, name }: ToolUseBlock): void {
  const { refused = {}, misnamed = [] } = marksOf(message)
  if (!Object.hasOwn(refused, id)) return
  const isKnown = !misnamed.includes(id) && agent.tools.some((tool) => tool.name === name)
  const shown = isKnown ? name : 'that does not exist' // log no invented names
  log('WARNING', `tool ${shown}: arguments are not one JSON object`)
}

function wellFormed(block: ToolResultBlock): ToolResultBlock {
  const text = serialize(block)
  if (text === JSON.stringify(block)) return block
  return ToolResultBlock.fromJSON(
    JSON.parse(text) as Parameters<typeof ToolResultBlock.fromJSON>[0],
  )
}

/** Cut the texts of a tool's result to `maxChars` characters in total. */
export function cutResult(block: ToolResultBlock, maxChars: number): ToolResultBlock {
  const texts = block.content.map(textIn)
  const kept = cutTexts(texts, maxChars)
  if (kept === texts) return block
  const content = block.content.flatMap((part, index): ToolResultContent[] => {
    const text = kept[index] ?? ''
    if (texts[index] === '') return [part] // such as an image
    return text ? [new TextBlock(text)] : []
  })
  return new ToolResultBlock({ ...block, content })
}

/** Return the text of a part of a result, or ''. */
export function textIn(part: ToolResultContent): string {
  if (part.type === 'jsonBlock') return JSON.stringify(part.json)
  return part.type === 'textBlock' ? part.text : ''
}

/**
 * Throw `model_failed` unless every provider accepts the messages of a turn.
 *
 * If `isWaiting`, the last calls may have no results.
 */
export function checkMessages(messages: readonly MessageData[], isWaiting: boolean): void {
  const ids = new Set<string>()
  let calls: string[] = []
  for (const [index, { role, content }] of messages.entries()) {
    if (role !== (index % 2 === 0 ? 'user' : 'assistant')) reject('roles that do not alternate')
    if (content.length === 0) reject('an empty message')
    if (content.some((block) => 'text' in block && isBlank(block.text))) reject('a blank text')
    const results = content.flatMap((block) =>
      'toolResult' in block ? [block.toolResult.toolUseId] : [],
    )
    if (serialize(results.toSorted()) !== serialize(calls.toSorted())) {
      reject('calls and results that differ')
    }
    calls = content.flatMap((block) => ('toolUse' in block ? [block.toolUse.toolUseId] : []))
    for (const id of calls) {
      if (ids.has(id)) reject('two calls with the same id')
      ids.add(id)
    }
  }
  if (messages.at(-1)?.role !== 'assistant') reject('no reply at the end')
  if (calls.length > 0 && !isWaiting) reject('a call without a result')
  if (serialize(messages) !== JSON.stringify(messages)) reject('text that is not Unicode')
}

function reject(fault: string): never {
  throw new AgentError('model_failed', '', `the turn would leave ${fault}`)
}
