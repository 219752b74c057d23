// Combines two Strands models. Strands' own ModelRouter can switch models even within a reply, so
// that the caller would see its start twice.

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
        if (first.signal.aborted) break // some models ignore the signal
        first.hasAnswered = true
        before.push(next.value)
        if (isContent(next.value)) return { before, events }
      }
      await events.return(undefined)
      return { before, events }
    }
    const [result, model] = await this.#fallback.replace(options?.cancelSignal, call)
    if (result) {
      try {
        yield* result.before
        yield* result.events
      } finally {
        await result.events.return(undefined)
      }
      return
    }
    // Each model sees only its own reasoning.
    for await (const event of new CheckedModel(model).stream(messages, options)) {
      this.#fallback.answers()
      yield event
    }
  }
}

/** Wrap the model of a turn, so that the second model answers after a temporary failure. */
export function withFallback(options: Options, fallback: FallbackSwitch): void {
  options.model = new FallbackModel(options.model, fallback)
}
