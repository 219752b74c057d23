// Two models as one model of Strands. Its ModelRouter replaces a model also after a part of the
// reply, which the caller would see twice.

import type { Message, Model, ModelStreamEvent, StreamOptions } from '@strands-agents/sdk'

import type { Options } from '../capability.ts'
import { CheckedModel } from '../messages.ts'
import { isContent } from '../models/shortening.ts'
import type { FirstCall, FallbackSwitch } from './second.ts'

/** Falls back to the second model if the first model fails before its first content. */
class FallbackModel extends CheckedModel {
  readonly #fallback: FallbackSwitch

  constructor(first: Model, fallback: FallbackSwitch) {
    super(first)
    this.#fallback = fallback
  }

  override async *stream(
    messages: Message[],
    options?: StreamOptions,
  ): AsyncGenerator<ModelStreamEvent> {
    const call = async (first: FirstCall) => {
      const events = super.stream(messages, { ...options, cancelSignal: first.signal })
      const before: ModelStreamEvent[] = []
      for (let next = await events.next(); !next.done; next = await events.next()) {
        if (first.signal.aborted) break // a model may not look at its signal
        first.hasAnswered = true
        before.push(next.value)
        if (isContent(next.value)) return { before, events }
      }
      await events.return(undefined)
      return { before, events }
    }
    const [begun, model] = await this.#fallback.replace(options?.cancelSignal, call)
    if (begun) {
      try {
        yield* begun.before
        yield* begun.events
      } finally {
        await begun.events.return(undefined)
      }
      return
    }
    // Each of the two sees its own reasoning only.
    for await (const event of new CheckedModel(model).stream(messages, options)) {
      this.#fallback.answers()
      yield event
    }
  }
}

/** Make the model of a turn one that consists of both. */
export function withFallback(options: Options, fallback: FallbackSwitch): void {
  options.model = new FallbackModel(options.model, fallback)
}
