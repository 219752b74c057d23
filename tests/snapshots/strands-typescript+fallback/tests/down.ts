// A model that is down.

import type { Message, ModelStreamEvent, StreamOptions } from '@strands-agents/sdk'

import { OfflineModel } from '../src/offline_model.ts'

/** Fails before its first event, with each of the errors; then it answers. */
export class DownModel extends OfflineModel {
  readonly errors: Error[]
  calls = 0

  constructor(...errors: Error[]) {
    super()
    this.errors = errors
  }

  override async *stream(
    messages: Message[],
    options?: StreamOptions,
  ): AsyncIterable<ModelStreamEvent> {
    this.calls += 1
    const error = this.errors.shift()
    if (error) throw error
    yield* super.stream(messages, options)
  }
}
