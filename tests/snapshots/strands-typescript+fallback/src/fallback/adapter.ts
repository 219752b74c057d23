// Two models as one model of Strands. Its ModelRouter replaces a model also after a part of the
// reply, which the caller would see twice.

import type { Message, Model, ModelStreamEvent, StreamOptions } from '@strands-agents/sdk'

import type { Options } from '../capability.ts'
import { CheckedModel } from '../messages.ts'
import type { Second } from './second.ts'

/** The second model answers a call that the first one fails before its first event. */
class FallbackModel extends CheckedModel {
  readonly #second: Second

  constructor(first: Model, second: Second) {
    super(first)
    this.#second = second
  }

  override async *stream(
    messages: Message[],
    options?: StreamOptions,
  ): AsyncGenerator<ModelStreamEvent> {
    const events = super.stream(messages, options)
    const begun = this.#second.inTime(() => events.next())
    const model = await begun.then(
      () => null,
      (error) => this.#second.takeOver(error),
    )
    if (model === null) {
      try {
        for (let next = await begun; !next.done; next = await events.next()) yield next.value
      } finally {
        await events.return(undefined)
      }
      return
    }
    // Each of the two sees its own reasoning only.
    for await (const event of new CheckedModel(model).stream(messages, options)) {
      this.#second.answers()
      yield event
    }
  }
}

/** Make the model of a turn one that consists of both. */
export function withFallback(options: Options, second: Second): void {
  options.model = new FallbackModel(options.model, second)
}
