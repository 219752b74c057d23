// Repairs a model's answers before their calls run, and checks the messages of a turn.

import { createHash, randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'

import { type ModelMessage, NoSuchToolError, type ToolResultPart } from 'ai'

import { cutTexts } from './models/context_length.ts'
import { AgentError, isBlank } from './contract.ts'
import { log } from './log.ts'
import type { Call as ModelCall, Part } from './echo_model.ts'
import type { CoreSettings } from './settings.ts'
import { CALL_ID, INVALID_ARGUMENTS, MAX_QUOTED_CHARS, tooMany } from './tool_schemas.ts'

type Prompt = ModelCall['prompt']
type Options = Record<string, Record<string, unknown>>
type Item = {
  type: string
  text?: string
  toolCallId?: string
  toolName?: string
  input?: unknown
  output?: unknown
  providerExecuted?: boolean
  providerOptions?: Options
}
type CallPart = Extract<Part, { type: 'tool-call' }>

/** The key of the model's name in `providerOptions`. */
const PRODUCER = 'producer'

// The parts that only their model understands.
const PRIVATE = /^(reasoning|custom$)/
// The parts that only their turn needs.
const PASSING = /^(reasoning-file|custom$|tool-approval)/

/** A rejected call: its shown and stored input, its error result and its log line. */
interface RejectedCall {
  shown: unknown
  input: object
  received?: string
  text: string
  /** The log line; '' if a line for the whole step exists. */
  kind: string
  isNamed: boolean
}

type Limits = Pick<CoreSettings, 'maxToolCalls' | 'maxResultChars'>

/** The tool calls of one turn. */
export class Calls {
  readonly refused = new Map<string, RejectedCall>()
  readonly #ids: Set<unknown>
  readonly #tools: object
  readonly #limits: Limits
  #count = 0 // calls in the answer

  constructor(messages: readonly ModelMessage[], tools: object, limits: Limits) {
    const parts = messages.flatMap(partsOf)
    this.#ids = new Set(parts.flatMap(({ type, toolCallId }) => (isCall(type) ? toolCallId : [])))
    this.#tools = tools
    this.#limits = limits
  }

  /** Return a part of an answer; repair the id, name and input of a call. */
  repair(part: Part): Part {
    if (part.type === 'finish') this.#endStep()
    if (part.type !== 'tool-call' || part.providerExecuted) return part
    this.#count += 1
    const toolCallId = this.#newId(part.toolCallId)
    const toolName = validName(part.toolName)
    const repaired = { ...part, toolCallId, toolName }
    const value = readObject(part.input)
    const refused = this.#refuse(part, toolName, value)
    if (!refused) return { ...repaired, input: inputOf(part.input, value) }
    this.refused.set(toolCallId, refused)
    // Invalid JSON keeps the SDK from running any tool, even with a permissive schema.
    return { ...repaired, input: `!${part.input}` }
  }

  /** Return a call's input for the caller. */
  shown({ toolCallId, input }: CallPart): unknown {
    const refused = this.refused.get(toolCallId)
    if (refused) return refused.shown
    try {
      return JSON.parse(input || '{}')
    } catch {
      return input // the provider ran the tool
    }
  }

  /** Return the SDK's messages of this turn with repaired calls, without blank texts. */
  mend(messages: readonly ModelMessage[]): ModelMessage[] {
    const copies = wellFormed(JSON.parse(JSON.stringify(messages))) as ModelMessage[]
    for (const copy of copies) {
      if (typeof copy.content === 'string') continue
      const parts = (copy.content as Item[]).filter((part) => !isBlankText(part))
      for (const part of parts) this.#mendPart(part)
      copy.content = parts as never
    }
    return copies
  }

  /** Cut the text of a tool's result to the limit. */
  cut(text: string): string {
    return cut(text, this.#limits.maxResultChars)
  }

  #endStep(): void {
    const { maxToolCalls: maxCalls } = this.#limits
    const isOver = this.#count > maxCalls
    if (isOver) log('WARNING', `model: ${this.#count} calls in one step, at most ${maxCalls} run`)
    this.#count = 0
  }

  #mendPart(part: Item): void {
    const refused = this.refused.get(part.toolCallId ?? '')
    if (!refused) return this.#cutPart(part)
    if (part.type === 'tool-call') {
      const { input, received } = refused
      const producer = { ...part.providerOptions?.[PRODUCER], ...(received && { received }) }
      part.input = input
      part.providerOptions = { ...part.providerOptions, [PRODUCER]: producer }
    }
    if (part.type === 'tool-result') part.output = { type: 'error-text', value: refused.text }
  }

  #cutPart(part: Item): void {
    if (part.type !== 'tool-result' || part.providerExecuted) return
    part.output = cutOutput(part.output as ToolResultPart['output'], this.#limits.maxResultChars)
  }

  #newId(id: unknown): string {
    const isValid = typeof id === 'string' && CALL_ID.test(id) && !this.#ids.has(id)
    // Mistral requires nine letters and digits. The SDK keeps approvals as keys of an object, which
    // digits alone would reorder.
    const valid = isValid ? id : `c${randomUUID().replaceAll('-', '').slice(0, 8)}`
    this.#ids.add(valid)
    return valid
  }

  #refuse(part: CallPart, toolName: string, value?: object): RejectedCall | undefined {
    const isNamed = toolName === part.toolName
    const sentInput = part.input.toWellFormed()
    const received = sentInput.slice(0, MAX_QUOTED_CHARS).toWellFormed()
    const call = value
      ? { shown: value, input: value, isNamed }
      : { shown: sentInput, input: {}, received, isNamed }
    if (this.#count > this.#limits.maxToolCalls) {
      return { ...call, text: tooMany(this.#limits.maxToolCalls), kind: '' }
    }
    if (!value) {
      const kind = 'arguments are not one JSON object'
      return { ...call, text: INVALID_ARGUMENTS + received, kind }
    }
    if (isNamed) return undefined
    const availableTools = Object.keys(this.#tools)
    const { message: text } = new NoSuchToolError({ toolName, availableTools })
    return { ...call, text, kind: 'invalid call' }
  }
}

/** Cut text to `maxChars` characters and append its length. */
function cut(text: string, maxChars: number): string {
  return cutTexts([text], maxChars)[0] ?? ''
}

/** Cut the texts of a tool's output to `maxChars` characters in total. */
function cutOutput(output: ToolResultPart['output'], maxChars: number): ToolResultPart['output'] {
  if (output.type === 'text' || output.type === 'error-text') {
    return { ...output, value: cut(output.value, maxChars) }
  }
  if (output.type === 'json' || output.type === 'error-json') {
    const value = output.value ?? null // tools may return undefined
    const text = JSON.stringify(value)
    const shown = cut(text, maxChars)
    if (shown === text) return { ...output, value }
    return { type: output.type === 'json' ? 'text' : 'error-text', value: shown }
  }
  if (output.type !== 'content') return output
  const texts = output.value.map((part) => (part.type === 'text' ? part.text : ''))
  const kept = cutTexts(texts, maxChars)
  const value = output.value.flatMap((part, index): typeof output.value => {
    if (part.type !== 'text') return [part]
    const text = kept[index] ?? ''
    return text ? [{ ...part, text }] : []
  })
  return { ...output, value }
}

/** Parse a JSON object and make its strings well formed; return undefined for any other text. */
function readObject(text: string): object | undefined {
  if (isBlank(text)) return {} // no arguments
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) && isFinite(value) ? (wellFormed(value) as object) : undefined
  } catch {
    return undefined
  }
}

/** Return the received arguments, or their repaired JSON. */
function inputOf(text: string, value: object | undefined): string {
  if (isBlank(text)) return '{}'
  return isDeepStrictEqual(JSON.parse(text), value) ? text : JSON.stringify(value)
}

function validName(name: unknown): string {
  const text = String(name ?? '')
  return text.replace(/[^a-zA-Z0-9_-]/gu, '_').slice(0, 64) || '_'
}

/**
 * Return stored messages with ids, names and arguments that every provider accepts.
 *
 * Older versions stored them without repairs. The repairs are deterministic, so that requests share
 * a cached prefix.
 */
export function restored(messages: readonly ModelMessage[]): ModelMessage[] {
  const seen = new Set<string>()
  const open = new Map<string, string[]>() // ids of calls without results
  const restore = (part: Item): Item => {
    const { type, toolCallId: id, toolName } = part
    if (id === undefined || part.providerExecuted) return part
    if (isCall(type)) {
      const toolCallId = CALL_ID.test(id) && !seen.has(id) ? id : derivedId(id, seen)
      seen.add(toolCallId)
      open.set(id, [...(open.get(id) ?? []), toolCallId])
      const input = isObject(part.input) ? part.input : {}
      return { ...part, toolCallId, toolName: validName(toolName), input }
    }
    const ids = open.get(id)
    if (!ids) return part
    if (type === 'tool-approval-request') return { ...part, toolCallId: ids.at(-1)! }
    const toolCallId = ids.length > 1 ? ids.shift()! : ids[0]!
    return { ...part, toolCallId, toolName: validName(toolName) }
  }
  return messages.map((message) => {
    if (typeof message.content === 'string') return message
    return { ...message, content: (message.content as Item[]).map(restore) } as ModelMessage
  })
}

function derivedId(id: string, seen: ReadonlySet<string>): string {
  for (let number = 0; ; number++) {
    const hash = createHash('sha256').update(`${number} ${id}`).digest('hex')
    const derived = `c${hash.slice(0, 8)}`
    if (!seen.has(derived)) return derived
  }
}

/** Add the model's name to the parts of its answer. */
export function marked<P extends { type: string }>(parts: readonly P[], model: string): P[] {
  return parts.map((part) => {
    if (!PRIVATE.test(part.type) && !part.type.startsWith('tool-')) return part
    const { providerMetadata } = part as { providerMetadata?: Options }
    return { ...part, providerMetadata: { ...providerMetadata, [PRODUCER]: { model } } }
  })
}

/** Return a prompt without the reasoning of other models and the calls of their providers. */
export function ownPrompt(prompt: Prompt, model: string): Prompt {
  const own = prompt.map((message) => {
    if (message.role !== 'assistant') return message
    const parts = message.content as Item[]
    const content = parts.flatMap((part) => {
      const { [PRODUCER]: producer, ...providerOptions } = part.providerOptions ?? {}
      if (producer?.model === model) return [{ ...part, providerOptions }]
      if (PRIVATE.test(part.type) || isProviders(part)) return []
      return [isCall(part.type) ? { ...part, providerOptions: {} } : part]
    })
    return { ...message, content } as Prompt[number]
  })
  return own.filter(({ content }) => content.length > 0)
}

/**
 * Return the messages of a turn without references to the provider's state.
 *
 * Reasoning with calls stays, because models need it in later turns.
 */
export function selfContained(messages: readonly ModelMessage[]): ModelMessage[] {
  return messages.flatMap((message) => {
    if (typeof message.content === 'string') return [message]
    const all = message.content as Item[]
    const parts = message.role === 'assistant' ? all.filter((part) => !isProviders(part)) : all
    const hasCalls = parts.some(({ type }) => isCall(type))
    const lasting = parts.filter(({ type }) => {
      return !PASSING.test(type) && (hasCalls || type !== 'reasoning')
    })
    const content = lasting.map(withoutReferences)
    return content.length > 0 ? [{ ...message, content } as ModelMessage] : []
  })
}

/** Whether a part is a call that the provider ran, or its result. */
function isProviders({ type, providerExecuted }: Item): boolean {
  return providerExecuted === true || type === 'tool-result'
}

function withoutReferences({ providerOptions, ...part }: Item): Item {
  if (part.type !== 'reasoning' && !isCall(part.type)) return part
  const kept = Object.entries(providerOptions ?? {}).map(([vendor, options]) => {
    const { itemId: _, ...others } = options
    return [vendor, others]
  })
  return kept.length > 0 ? { ...part, providerOptions: Object.fromEntries(kept) } : part
}

/**
 * Throw `model_failed` unless every provider accepts the messages of a turn.
 *
 * `history` contains the earlier messages. If `isWaiting`, the last calls may have no results.
 */
export function checkMessages(
  newMessages: readonly ModelMessage[],
  history: readonly ModelMessage[],
  isWaiting: boolean,
): void {
  const fault = findFault(newMessages, history, isWaiting)
  if (fault) throw new AgentError('model_failed', '', fault)
}

function findFault(
  newMessages: readonly ModelMessage[],
  history: readonly ModelMessage[],
  isWaiting: boolean,
): string | undefined {
  const ids = new Set(callsIn(history))
  let open = new Set<unknown>()
  let role = 'none'
  for (const message of newMessages) {
    if (open.size > 0 && message.role !== 'tool') return 'a call has no result'
    if (!isNext(role, message.role)) return 'the roles do not alternate'
    const parts = partsOf(message)
    if (parts.length === 0) return 'a message is empty'
    if (parts.some(isBlankText)) return 'a text is blank'
    for (const { type, toolCallId } of parts) {
      if (type === 'tool-result' && message.role === 'tool' && !open.delete(toolCallId)) {
        return 'a result has no call'
      }
    }
    for (const id of callsIn([message])) {
      if (ids.has(id)) return 'two calls have the same id'
      ids.add(id)
      open.add(id)
    }
    role = message.role
  }
  if (!isWaiting && open.size > 0) return 'a call has no result'
  if (!isWaiting && role !== 'assistant') return 'the last message is not from the assistant'
  const isWellFormed = isDeepStrictEqual(wellFormed(newMessages), newMessages)
  return isWellFormed ? undefined : 'a text is not well formed'
}

/** Whether a role may follow another role; results may span several messages. */
function isNext(role: string, next: string): boolean {
  if (next === 'user') return role === 'none'
  if (next === 'assistant') return role === 'user' || role === 'tool'
  return next === 'tool' && role !== 'none' && role !== 'user'
}

function callsIn(messages: readonly ModelMessage[]): unknown[] {
  const parts = messages.flatMap(partsOf)
  return parts.flatMap((part) => {
    return isCall(part.type) && !part.providerExecuted ? [part.toolCallId] : []
  })
}

function partsOf({ content }: ModelMessage): Item[] {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : (content as Item[])
}

function isCall(type: string): boolean {
  return type === 'tool-call'
}

function isBlankText({ type, text }: Item): boolean {
  return type === 'text' && isBlank(text ?? '')
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Whether all numbers are finite, as JSON requires. */
function isFinite(value: unknown): boolean {
  if (typeof value === 'number') return Number.isFinite(value)
  return typeof value !== 'object' || value === null || Object.values(value).every(isFinite)
}

/** Return a copy of JSON data without lone surrogates, which providers reject. */
function wellFormed(value: unknown): unknown {
  if (typeof value === 'string') return value.toWellFormed()
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) return value.map(wellFormed)
  const entries = Object.entries(value)
  return Object.fromEntries(entries.map(([key, item]) => [key.toWellFormed(), wellFormed(item)]))
}
