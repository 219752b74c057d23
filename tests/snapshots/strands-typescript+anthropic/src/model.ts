// Which model answers: MODEL at Anthropic, or the offline model while MODEL is unset.

import Anthropic from '@anthropic-ai/sdk'
import type { Message, Model, ModelStreamEvent, StreamOptions } from '@strands-agents/sdk'
import { AnthropicModel } from '@strands-agents/sdk/models/anthropic'

import { AgentError } from './contract.ts'
import { diagnostic, type Finding } from './findings.ts'
import { OfflineModel } from './offline_model.ts'
import { boundedFetch } from './provider.ts'
import { type CoreSettings, isPlainHttp } from './settings.ts'

// What to look at when the provider refuses a call, and when it is not reached.
export const [CREDENTIALS, ADDRESS] = ['ANTHROPIC_API_KEY', 'ANTHROPIC_BASE_URL']

const MAX_TOKENS = 8192 // of one answer; Anthropic requires a limit

/** The base class reads on when nobody listens, and fails for a call with broken arguments. */
class MessagesModel extends AnthropicModel {
  readonly #messages: Anthropic.Messages
  readonly #maxBytes: number

  constructor(settings: CoreSettings) {
    const caching = settings.promptCache > 0 && { cacheConfig: {} }
    super({ modelId: settings.model, maxTokens: MAX_TOKENS, ...caching })
    const quiet = { logLevel: 'off' as const } // it would print what it cannot read
    this.#messages = new Anthropic({ fetch: boundedFetch(settings), ...quiet }).messages
    this.#maxBytes = settings.maxReplyBytes
  }

  override async *stream(
    messages: Message[],
    options?: StreamOptions,
  ): AsyncGenerator<ModelStreamEvent> {
    const [api, signal] = [this.#messages, options?.cancelSignal]
    async function* stream(body: Anthropic.MessageCreateParams, more?: Anthropic.RequestOptions) {
      yield* await api.create({ ...body, stream: true }, { ...more, signal })
    }
    const client = { messages: { stream } } as unknown as Anthropic
    const model = new AnthropicModel({ ...this.getConfig(), client })
    let input = ''
    for await (const event of model.stream(messages, options)) {
      if (
        event.type === 'modelContentBlockDeltaEvent' &&
        event.delta.type === 'toolUseInputDelta'
      ) {
        input += event.delta.input
        const isTooLong = input.length > this.#maxBytes
        if (isTooLong) throw new AgentError('reply_incomplete', '', 'MAX_REPLY_BYTES')
        continue
      }
      if (event.type === 'modelContentBlockStopEvent' && input) {
        const delta = { type: 'toolUseInputDelta' as const, input: mend(input) }
        yield { type: 'modelContentBlockDeltaEvent', delta }
        input = ''
      }
      yield event
    }
  }
}

/** The arguments of a call, or none if they are not JSON: the tool then says what it wants. */
function mend(input: string): string {
  try {
    return JSON.stringify(JSON.parse(input))
  } catch {
    return '{}'
  }
}

/** The model of this process. */
export function buildModel(settings: CoreSettings): Model {
  if (settings.model === 'offline') return new OfflineModel()
  return new MessagesModel(settings)
}

/** Return findings about missing or invalid model settings. */
export function checkModel(settings: CoreSettings, _connect = false): Finding[] {
  if (!/^https?:\/\//i.test(modelEndpoint(settings))) {
    const hint = 'ANTHROPIC_BASE_URL must be an http address, as in https://api.anthropic.com.'
    return [diagnostic('SET-ANTHROPIC_BASE_URL', hint)]
  }
  if (process.env.ANTHROPIC_API_KEY) {
    if (!isPlainHttp(modelEndpoint(settings))) return []
    const hint = 'ANTHROPIC_API_KEY travels over plain http to another host: use https.'
    return [diagnostic('SET-ANTHROPIC_BASE_URL', hint, 'warning')]
  }
  const what = 'ANTHROPIC_API_KEY is not set: MODEL needs it.'
  return [diagnostic('SET-ANTHROPIC_API_KEY', what)]
}

/** Where the model is reached. */
export function modelEndpoint(_settings: CoreSettings): string {
  return process.env.ANTHROPIC_BASE_URL || 'https://api.anthropic.com'
}
