// Which model answers: MODEL over Chat Completions, or the offline model while MODEL is unset.

import { type BaseModelConfig, type Message, Model } from '@strands-agents/sdk'
import type { ModelStreamEvent, StopReason, StreamOptions } from '@strands-agents/sdk'
import type { ToolResultBlock, Usage } from '@strands-agents/sdk'
import OpenAI from 'openai'
import type { ChatCompletionMessageParam } from 'openai/resources/chat/completions'

import { chatFetch } from './chat_stream.ts'
import { AgentError } from './contract.ts'
import { diagnostic, type Finding } from './findings.ts'
import { OfflineModel } from './offline_model.ts'
import { type CoreSettings, isPlainHttp } from './settings.ts'

// What to look at when the provider refuses a call, and when it is not reached.
export const [CREDENTIALS, ADDRESS] = ['OPENAI_API_KEY', 'OPENAI_BASE_URL']

const STOPS: Record<string, StopReason> = {
  stop: 'endTurn',
  tool_calls: 'toolUse',
  length: 'maxTokens',
  content_filter: 'contentFiltered',
}

/**
 * OpenAI's Chat Completions, as OpenAI, Ollama, vLLM and others serve them.
 *
 * Strands' own OpenAIModel forgets the text in front of a tool call, all but the last of several
 * calls and the white space around a text, and fails a turn for a call with broken arguments.
 */
class ChatModel extends Model {
  #config: BaseModelConfig
  readonly #client: OpenAI
  readonly #maxBytes: number

  constructor(settings: CoreSettings) {
    super()
    this.#config = { modelId: settings.model }
    this.#maxBytes = settings.maxReplyBytes
    // A server of your own may want no key, but the client insists on one.
    const apiKey = process.env.OPENAI_API_KEY || 'none'
    const quiet = { logLevel: 'off' as const } // it would print what it cannot read
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
      model: this.#config.modelId ?? '',
      messages: [system, ...messages.flatMap(translate)],
      stream: true as const,
      stream_options: { include_usage: true },
      ...(tools?.length && { tools }),
    }
    const stop = { signal: options?.cancelSignal }
    const calls: { id: string; name: string; input: string }[] = []
    let reason: string | null = null
    let usage: OpenAI.CompletionUsage | null | undefined
    const chunks = await this.#client.chat.completions.create(request, stop)
    yield { type: 'modelMessageStartEvent', role: 'assistant' }
    yield { type: 'modelContentBlockStartEvent' }
    for await (const chunk of chunks) {
      const { delta, finish_reason } = chunk.choices[0] ?? {}
      usage = chunk.usage ?? usage
      if (delta?.content) {
        const text = { type: 'textDelta' as const, text: delta.content }
        yield { type: 'modelContentBlockDeltaEvent', delta: text }
      }
      for (const part of delta?.tool_calls ?? []) {
        const call = (calls[part.index] ??= { id: '', name: '', input: '' })
        call.id ||= part.id ?? ''
        call.name ||= part.function?.name ?? ''
        call.input += part.function?.arguments ?? ''
        const isTooLong = call.input.length > this.#maxBytes
        if (isTooLong) throw new AgentError('reply_incomplete', '', 'MAX_REPLY_BYTES')
      }
      reason = finish_reason ?? reason
    }
    yield { type: 'modelContentBlockStopEvent' }
    if (!reason) throw new Error('the stream ended without a finish reason')
    for (const { id: toolUseId, name, input } of calls.filter(Boolean)) {
      const start = { type: 'toolUseStart' as const, name, toolUseId }
      yield { type: 'modelContentBlockStartEvent', start }
      const delta = { type: 'toolUseInputDelta' as const, input: mend(input) }
      yield { type: 'modelContentBlockDeltaEvent', delta }
      yield { type: 'modelContentBlockStopEvent' }
    }
    const isCall = calls.length > 0 && reason === 'stop' // as some servers say
    yield {
      type: 'modelMessageStopEvent',
      stopReason: isCall ? 'toolUse' : (STOPS[reason] ?? reason),
    }
    yield { type: 'modelMetadataEvent', usage: usageOf(usage) }
  }
}

/** The usage as Strands counts it: input tokens are those that were not cached. */
function usageOf(usage?: OpenAI.CompletionUsage | null): Usage {
  const { prompt_tokens = 0, completion_tokens: outputTokens = 0 } = usage ?? {}
  const cacheReadInputTokens = usage?.prompt_tokens_details?.cached_tokens ?? 0
  const inputTokens = prompt_tokens - cacheReadInputTokens
  const totalTokens = prompt_tokens + outputTokens
  return { inputTokens, outputTokens, totalTokens, cacheReadInputTokens }
}

/** What a message of ours is in Chat Completions. */
function translate({ role, content }: Message): ChatCompletionMessageParam[] {
  const text = content.map((block) => (block.type === 'textBlock' ? block.text : '')).join('')
  const results = content.flatMap((block) =>
    block.type === 'toolResultBlock'
      ? [{ role: 'tool' as const, tool_call_id: block.toolUseId, content: textOf(block) }]
      : [],
  )
  if (role === 'user') return text ? [...results, { role, content: text }] : results
  const calls = content.flatMap((block) => {
    if (block.type !== 'toolUseBlock') return []
    const { name, toolUseId: id, input } = block
    return [{ type: 'function' as const, id, function: { name, arguments: JSON.stringify(input) } }]
  })
  return [{ role, content: text, ...(calls.length > 0 && { tool_calls: calls }) }]
}

function textOf(result: ToolResultBlock): string {
  const texts = result.content.map((part) =>
    part.type === 'textBlock'
      ? part.text
      : JSON.stringify(part.type === 'jsonBlock' ? part.json : part),
  )
  return texts.join('')
}

/** The arguments of a call, or none if they are not an object: the tool then says what it wants. */
function mend(input: string): string {
  try {
    return JSON.parse(input) instanceof Object && !input.trim().startsWith('[') ? input : '{}'
  } catch {
    return '{}'
  }
}

/** The model of this process. */
export function buildModel(settings: CoreSettings): Model {
  return settings.model === 'offline' ? new OfflineModel() : new ChatModel(settings)
}

/** Return findings about missing or invalid model settings. */
export function checkModel(settings: CoreSettings, _connect = false): Finding[] {
  const { OPENAI_API_KEY: key, OPENAI_BASE_URL: url } = process.env
  if (!/^https?:\/\//i.test(modelEndpoint(settings))) {
    const hint = 'OPENAI_BASE_URL must be an http address, as in http://localhost:11434/v1.'
    return [diagnostic('SET-OPENAI_BASE_URL', hint)]
  }
  if (key && isPlainHttp(modelEndpoint(settings))) {
    const hint = 'OPENAI_API_KEY travels over plain http to another host: use https.'
    return [diagnostic('SET-OPENAI_BASE_URL', hint, 'warning')]
  }
  if (key || url) return []
  const hint = 'Set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own: MODEL needs it.'
  return [diagnostic('SET-OPENAI_API_KEY', hint)]
}

/** Where the model is reached. */
export function modelEndpoint(_settings: CoreSettings): string {
  return process.env.OPENAI_BASE_URL || 'https://api.openai.com/v1'
}
