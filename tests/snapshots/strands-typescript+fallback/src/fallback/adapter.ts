// Two models as one model of Strands. Its ModelRouter replaces a model also after a part of the
// reply, which the caller would see twice.

import { type BaseModelConfig, type Message, Model } from '@strands-agents/sdk'
import type { ModelStreamEvent, StreamOptions } from '@strands-agents/sdk'

import type { Options } from '../capability.ts'
import type { Second } from './second.ts'

/** The second model answers a call that the first one fails before its first event. */
class FallbackModel extends Model {
  readonly #first: Model
  readonly #second: Second

  constructor(first: Model, second: Second) {
    super()
    this.#first = first
    this.#second = second
  }

  updateConfig(config: BaseModelConfig): void {
    this.#first.updateConfig(config)
  }

  getConfig(): BaseModelConfig {
    return this.#first.getConfig()
  }

  async *stream(messages: Message[], options?: StreamOptions): AsyncIterable<ModelStreamEvent> {
    const events = this.#first.stream(messages, options)[Symbol.asyncIterator]()
    const begun = this.#second.inTime(() => events.next())
    const model = await begun.then(
      () => null,
      (error) => this.#second.takeOver(error),
    )
    if (model === null) {
      try {
        for (let next = await begun; !next.done; next = await events.next()) yield next.value
      } finally {
        await events.return?.()
      }
      return
    }
    for await (const event of model.stream(messages, options)) {
      this.#second.answers()
      yield event
    }
  }
}

/** Make the model of a turn one that consists of both. */
export function withFallback(options: Options, second: Second): void {
  options.model = new FallbackModel(options.model, second)
}
