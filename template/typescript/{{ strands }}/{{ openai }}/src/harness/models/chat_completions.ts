// The Chat Completions API of OpenAI and compatible servers, as a model of Strands.

import { type BaseModelConfig, type Message, Model } from '@strands-agents/sdk'
import type { ContentBlock, JSONValue, ModelStreamEvent, StopReason } from '@strands-agents/sdk'
import type { StreamOptions, ToolResultBlock, Usage } from '@strands-agents/sdk'
import OpenAI from 'openai'
import type {
  ChatCompletionContentPart,
  ChatCompletionCreateParams,
  ChatCompletionMessageParam,
} from 'openai/resources/chat/completions'

import { diagnostic, type Finding } from '../findings.ts'
import { marksOf } from '../messages.ts'
import type { CoreSettings } from '../settings.ts'
import { chatFetch } from './chat_stream.ts'
import { checkAddress } from './provider.ts'

/** Further parameters of each request. */
export type VendorOptions = Partial<
  Omit<ChatCompletionCreateParams, 'messages' | 'model' | 'stream' | 'tools'>
>

const EXAMPLE_ADDRESS = 'http://localhost:11434/v1'

// The fields of reasoning, text or lists of parts. Some servers require them back.
const REASONING = ['reasoning_content', 'reasoning', 'reasoning_details'] as const

// Ends a content block and starts another.
const NEXT_BLOCK = [
  { type: 'modelContentBlockStopEvent' },
  { type: 'modelContentBlockStartEvent' },
] as const

type Reasoning = Partial<Record<(typeof REASONING)[number], JSONValue>>
type Part = Record<string, JSONValue>
type Signed = { extra_content?: { google?: { thought_signature?: string } } }

const STOPS: Record<string, StopReason> = {
  stop: 'endTurn',
  tool_calls: 'toolUse',
  length: 'maxTokens',
  content_filter: 'contentFiltered',
}

/**
 * The Chat Completions API of OpenAI, Ollama, vLLM and others.
 *
 * Strands' own OpenAIModel drops the text before a tool call, all but the last of several calls,
 * white space around a text, and the reasoning that some servers require back.
 */
class ChatModel extends Model {
  #config: BaseModelConfig
  readonly #client: OpenAI
  readonly #options: VendorOptions

  constructor(settings: CoreSettings, options: VendorOptions) {
    super()
    this.#config = { modelId: settings.model }
    this.#options = options
    // Your own server may need no key, but the client requires a key.
    const apiKey = process.env.OPENAI_API_KEY || 'none'
    const quiet = { logLevel: 'off' as const } // otherwise it prints unreadable data
    this.#client = new OpenAI({ apiKey, fetch: chatFetch(settings), ...quiet })
  }

  updateConfig(config: BaseModelConfig): void {
    this.#config = { ...this.#config, ...config }
  }

  getConfig(): BaseModelConfig {
    return this.#config
  }

  async *stream(messages: Message[], options?: StreamOptions): AsyncIterable<ModelStreamEvent> {
    const tools = options?.toolSpecs?.map(({ name, description, inputSchema }) => {
      const parameters = inputSchema as Record<string, unknown>
      return { type: 'function' as const, function: { name, description, parameters } }
    })
    const system = { role: 'system' as const, content: String(options?.systemPrompt ?? '') }
    const request = {
      ...this.#options,
      model: this.#config.modelId ?? '',
      messages: [system, ...messages.flatMap(translate)],
      stream: true as const,
      stream_options: { include_usage: true },
      ...(tools?.length && { tools }),
    }
    const stop = { signal: options?.cancelSignal }
    const calls: { id: string; name: string; input: string; signature: string }[] = []
    const fields: Reasoning = {}
    let reason: string | null = null
    let hasBegun = false // whether reasoning or a tool call has started
    let usage: OpenAI.CompletionUsage | null | undefined
    const chunks = await this.#client.chat.completions.create(request, stop)
    yield { type: 'modelMessageStartEvent', role: 'assistant' }
    yield { type: 'modelContentBlockStartEvent' }
    let isReasoning = false // whether the open block is reasoning
    for await (const chunk of chunks) {
      const { delta, finish_reason } = chunk.choices[0] ?? {}
      usage = chunk.usage ?? usage
      const reasoning = visibleReasoning((delta ?? {}) as Reasoning)
      addReasoning(fields, (delta ?? {}) as Reasoning)
      const hasContent = () => Object.values(fields).some((value) => String(value) !== '')
      const isFirst = !hasBegun && (Boolean(delta?.tool_calls?.length) || hasContent())
      if (reasoning || isFirst) {
        hasBegun = true
        // An empty text only signals the start.
        const more = { type: 'reasoningContentDelta' as const, text: reasoning }
        if (reasoning && !isReasoning) yield* NEXT_BLOCK
        isReasoning ||= reasoning !== ''
        yield { type: 'modelContentBlockDeltaEvent', delta: more }
      }
      if (delta?.content) {
        const text = { type: 'textDelta' as const, text: delta.content }
        if (isReasoning) yield* NEXT_BLOCK
        isReasoning = false
        yield { type: 'modelContentBlockDeltaEvent', delta: text }
      }
      for (const part of delta?.tool_calls ?? []) {
        const call = (calls[part.index] ??= { id: '', name: '', input: '', signature: '' })
        call.signature ||= (part as Signed).extra_content?.google?.thought_signature ?? ''
        call.id ||= part.id ?? ''
        call.name ||= part.function?.name ?? ''
        call.input += part.function?.arguments ?? ''
      }
      reason = finish_reason ?? reason
    }
    yield { type: 'modelContentBlockStopEvent' }
    if (!reason) throw new Error('the stream ended without a finish reason')
    for (const { id: toolUseId, name, input, signature } of calls.filter(Boolean)) {
      const signed = signature && { reasoningSignature: signature }
      const start = { type: 'toolUseStart' as const, name, toolUseId, ...signed }
      yield { type: 'modelContentBlockStartEvent', start }
      const delta = { type: 'toolUseInputDelta' as const, input }
      yield { type: 'modelContentBlockDeltaEvent', delta }
      yield { type: 'modelContentBlockStopEvent' }
    }
    const stopReason = STOPS[reason] ?? reason
    yield { type: 'modelMessageStopEvent', stopReason, additionalModelResponseFields: fields }
    yield { type: 'modelMetadataEvent', usage: usageOf(usage) }
  }
}

/** Return the usage for Strands, which counts cached tokens separately from the input. */
function usageOf(usage?: OpenAI.CompletionUsage | null): Usage {
  const { prompt_tokens = 0, completion_tokens: outputTokens = 0 } = usage ?? {}
  const cacheReadInputTokens = usage?.prompt_tokens_details?.cached_tokens ?? 0
  const inputTokens = prompt_tokens - cacheReadInputTokens
  const totalTokens = prompt_tokens + outputTokens
  return { inputTokens, outputTokens, totalTokens, cacheReadInputTokens }
}

/** Return the readable reasoning in a delta; encrypted parts are not readable. */
function visibleReasoning(delta: Reasoning): string {
  const { reasoning_content: content, reasoning, reasoning_details: details } = delta
  const parts = Array.isArray(details) ? (details as Part[]) : []
  const shown = parts.map((part) => part?.text || part?.summary || '').join('')
  return [content, reasoning, shown].reduce<string>((longest, text) => {
    return typeof text === 'string' && text.length > longest.length ? text : longest
  }, '')
}

/** Add the reasoning of a chunk to `fields`. */
function addReasoning(fields: Reasoning, delta: Reasoning): void {
  for (const name of REASONING) {
    const added = delta[name]
    const before = fields[name]
    if (typeof added === 'string') fields[name] = `${before ?? ''}${added}`
    else if (Array.isArray(added)) fields[name] = joined((before ?? []) as Part[], added as Part[])
  }
}

/** Join the parts of reasoning, which arrive in pieces. */
function joined(before: Part[], added: Part[]): Part[] {
  const parts = [...before]
  for (const part of added) {
    const last = parts.at(-1)
    const isSame = last?.type === 'reasoning.text' && last.type === part.type
    if (isSame && last.index === part.index) {
      const text = `${last.text ?? ''}${part.text ?? ''}`
      parts[parts.length - 1] = { ...last, ...part, text }
    } else {
      parts.push(part)
    }
  }
  return parts
}

/** Convert a message to Chat Completions. */
function translate(message: Message): ChatCompletionMessageParam[] {
  const { role, content } = message
  const text = content.map((block) => (block.type === 'textBlock' ? block.text : '')).join('')
  const results = content.flatMap((block) =>
    block.type === 'toolResultBlock'
      ? [{ role: 'tool' as const, tool_call_id: block.toolUseId, content: textOf(block) }]
      : [],
  )
  if (role === 'user') {
    const files = content.flatMap(fileOf)
    const parts = [...(text ? [{ type: 'text' as const, text }] : []), ...files]
    if (files.length > 0) return [...results, { role, content: parts }]
    return text ? [...results, { role, content: text }] : results
  }
  const calls = content.flatMap((block) => {
    if (block.type !== 'toolUseBlock') return []
    const { name, toolUseId: id, input, reasoningSignature: thought_signature } = block
    const signed = thought_signature && { extra_content: { google: { thought_signature } } }
    const called = { name, arguments: JSON.stringify(input) }
    return [{ type: 'function' as const, id, function: called, ...signed }]
  })
  const fields = Object.entries(marksOf(message).fields ?? {})
  const reasoning = fields.filter(([name]) => (REASONING as readonly string[]).includes(name))
  const called = calls.length > 0 && { tool_calls: calls, ...Object.fromEntries(reasoning) }
  // Some servers reject an empty text with calls.
  return [{ role, content: calls.length > 0 ? text || null : text, ...called }]
}

/** Convert an image or a PDF of a prompt. */
function fileOf(block: ContentBlock): ChatCompletionContentPart[] {
  if (block.type !== 'imageBlock' && block.type !== 'documentBlock') return []
  if (!('bytes' in block.source)) return []
  const { bytes } = block.source
  const url = `;base64,${Buffer.from(bytes).toString('base64')}`
  if (block.type === 'imageBlock') {
    return [{ type: 'image_url', image_url: { url: `data:image/${block.format}${url}` } }]
  }
  const filename = `${block.name}.${block.format}`
  return [{ type: 'file', file: { filename, file_data: `data:application/pdf${url}` } }]
}

function textOf(result: ToolResultBlock): string {
  const texts = result.content.map((part) =>
    part.type === 'textBlock'
      ? part.text
      : JSON.stringify(part.type === 'jsonBlock' ? part.json : part),
  )
  return texts.join('')
}

/** Return the model for these settings. */
export function vendorModel(settings: CoreSettings, options: VendorOptions): Model {
  return new ChatModel(settings, options)
}

/** Return findings about missing or invalid model settings. */
export function vendorFindings(settings: CoreSettings): Finding[] {
  const { OPENAI_API_KEY: key, OPENAI_BASE_URL: url } = process.env
  const address = {
    variable: 'OPENAI_BASE_URL',
    url: vendorEndpoint(settings),
    example: EXAMPLE_ADDRESS,
  }
  const findings = checkAddress(address, key ? 'OPENAI_API_KEY' : '')
  if (key || url || findings.length > 0) return findings
  const hint = 'MODEL requires OPENAI_API_KEY, or OPENAI_BASE_URL for your own server.'
  return [diagnostic('SET-OPENAI_API_KEY', hint)]
}

/** Return the address of the provider. */
export function vendorEndpoint(_settings: CoreSettings): string {
  return process.env.OPENAI_BASE_URL || 'https://api.openai.com/v1'
}
