// A Strands model that counts its requests.

import { type BaseModelConfig, type Message, Model } from '@strands-agents/sdk'
import type { ModelStreamEvent, StreamOptions, Usage } from '@strands-agents/sdk'

import { charsOf } from '../models/context_length.ts'
import type { Meter } from './metering.ts'

class MeteredModel extends Model {
  readonly #model: Model
  readonly #meter: Meter

  constructor(model: Model, meter: Meter) {
    super()
    this.#model = model
    this.#meter = meter
  }

  updateConfig(config: BaseModelConfig): void {
    this.#model.updateConfig(config)
  }

  getConfig(): BaseModelConfig {
    return this.#model.getConfig()
  }

  async *stream(messages: Message[], options?: StreamOptions): AsyncGenerator<ModelStreamEvent> {
    const sent = charsOf([messages, options?.systemPrompt, options?.toolSpecs])
    const request = await this.#meter.begin(sent)
    try {
      for await (const event of this.#model.stream(messages, options)) {
        if (event.type === 'modelContentBlockDeltaEvent') request.chars += charsOf(event.delta)
        if (event.type === 'modelMetadataEvent' && event.usage) {
          request.usage = tokensOf(event.usage)
        }
        yield event
      }
    } finally {
      await request.count()
    }
  }
}

function tokensOf(usage: Usage): number {
  const cached = (usage.cacheReadInputTokens ?? 0) + (usage.cacheWriteInputTokens ?? 0)
  return usage.inputTokens + cached + usage.outputTokens
}

/** Wrap a model so that its requests count toward the limits. */
export function metered(model: Model, meter: Meter): Model {
  return new MeteredModel(model, meter)
}
