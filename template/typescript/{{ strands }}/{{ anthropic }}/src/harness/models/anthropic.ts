// The Messages API of Anthropic and of proxies, as a model of Strands.

import { isDeepStrictEqual } from 'node:util'

import Anthropic from '@anthropic-ai/sdk'
import type { Message, Model, ModelStreamEvent, StreamOptions } from '@strands-agents/sdk'
import { AnthropicModel, type AnthropicModelConfig } from '@strands-agents/sdk/models/anthropic'

import { AgentError, isBlank } from '../contract.ts'
import { diagnostic, type Finding } from '../findings.ts'
import type { CoreSettings } from '../settings.ts'
import { boundedFetch, checkAddress } from './provider.ts'

export type VendorOptions = AnthropicModelConfig

const DEFAULT_ADDRESS = 'https://api.anthropic.com'

type Api = Anthropic.Messages
type Body = Anthropic.MessageCreateParams
type Event = Anthropic.RawMessageStreamEvent

/** The base class reads on without a listener, and drops fields of proxies and newer models. */
class MessagesModel extends AnthropicModel {
  readonly #api: Api

  constructor(config: AnthropicModelConfig, settings: CoreSettings) {
    super(config)
    const quiet = { logLevel: 'off' as const } // otherwise it prints unreadable data
    this.#api = new Anthropic({ fetch: boundedFetch(settings), ...quiet }).messages
  }

  override async *stream(
    messages: Message[],
    options?: StreamOptions,
  ): AsyncGenerator<ModelStreamEvent> {
    const api = this.#api
    const signal = options?.cancelSignal
    async function* stream(body: Body, more?: Anthropic.RequestOptions) {
      const request = { ...withRedacted(body), stream: true as const }
      yield* completed(await api.create(request, { ...more, signal }))
    }
    const client = { messages: { stream } } as unknown as Anthropic
    yield* new AnthropicModel({ ...this.getConfig(), client }).stream(messages, options)
  }
}

/** Restore the text of redacted thinking in a request; the SDK stores bytes. */
function withRedacted(body: Body): Body {
  const messages = body.messages.map((message) => {
    if (typeof message.content === 'string') return message
    const content = message.content.map((block) => {
      if (block.type !== 'redacted_thinking' || typeof block.data === 'string') return block
      return { ...block, data: Buffer.from(block.data).toString() }
    })
    return { ...message, content }
  })
  return { ...body, messages }
}

/** Yield the events of an answer, with events that the SDK needs and some servers omit. */
async function* completed(events: AsyncIterable<Event>): AsyncGenerator<Event> {
  let first = '' // arguments at the start of a call
  let others = ''
  let reason: string | null = null
  let hasStopped = false
  const open = new Set<number>()
  const withoutArguments = new Set<number>() // indexes of calls without arguments
  for await (const event of events) {
    if (event.type === 'message_start') {
      event.message.usage ??= { input_tokens: 0, output_tokens: 0 } as Anthropic.Usage
    } else if (event.type === 'content_block_start') {
      const { content_block: block } = event
      open.add(event.index)
      first = block.type === 'tool_use' ? JSON.stringify(block.input ?? {}) : '{}'
      others = ''
      if (block.type === 'tool_use') {
        // Later arguments of the first call would mix with the arguments of this call.
        const isUnclear = withoutArguments.has(event.index)
        if (isUnclear) throw new AgentError('model_failed', '', 'two calls have one index')
        if (isEmpty(first)) withoutArguments.add(event.index)
      }
    } else if (event.type === 'content_block_delta') {
      const text = event.delta.type === 'input_json_delta' ? event.delta.partial_json : ''
      // The SDK would add the text to the arguments of another call.
      const isLate = text && !open.has(event.index)
      if (isLate) throw new AgentError('model_failed', '', 'arguments outside of a call')
      others += text
      if (!isBlank(text)) withoutArguments.delete(event.index)
    } else if (event.type === 'content_block_stop') {
      // If both differ, together they are not a JSON object, so the call fails.
      const delta = { type: 'input_json_delta' as const, partial_json: first }
      const { index } = event
      const isNew = !isEmpty(first) && !isSame(first, others)
      if (isNew) yield { type: 'content_block_delta', index, delta }
      first = '{}'
      open.delete(index)
    } else if (event.type === 'message_delta') {
      reason = event.delta.stop_reason ?? reason
      if (reason === 'pause_turn') throw new AgentError('reply_incomplete', '', 'pauseTurn')
    }
    // The SDK would accept the answer as complete.
    if (event.type === 'message_stop' && !reason) break
    hasStopped ||= event.type === 'message_stop'
    yield event
  }
  if (reason && !hasStopped) yield { type: 'message_stop' }
}

/** Return whether the arguments at the start of a call are empty. */
function isEmpty(json: string): boolean {
  return json === '{}' || json === '""'
}

function isSame(json: string, text: string): boolean {
  try {
    return isDeepStrictEqual(JSON.parse(text), JSON.parse(json))
  } catch {
    return false
  }
}

/** Return the model for these settings. */
export function vendorModel(settings: CoreSettings, options: VendorOptions): Model {
  const caching = settings.promptCache ? { cacheConfig: {} } : {}
  return new MessagesModel({ modelId: settings.model, ...caching, ...options }, settings)
}

/** Return findings about missing or invalid model settings. */
export function vendorFindings(settings: CoreSettings): Finding[] {
  const key = process.env.ANTHROPIC_API_KEY
  const address = {
    variable: 'ANTHROPIC_BASE_URL',
    url: vendorEndpoint(settings),
    example: DEFAULT_ADDRESS,
  }
  const findings = checkAddress(address, key ? 'ANTHROPIC_API_KEY' : '')
  if (key || findings.length > 0) return findings
  return [diagnostic('SET-ANTHROPIC_API_KEY', 'ANTHROPIC_API_KEY is not set: MODEL needs it.')]
}

/** Return the address of the provider. */
export function vendorEndpoint(_settings: CoreSettings): string {
  return process.env.ANTHROPIC_BASE_URL || DEFAULT_ADDRESS
}
