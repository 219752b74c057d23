// A model that calls tools with any name, id and arguments.

import type { Message, ModelStreamEvent, StreamOptions } from '@strands-agents/sdk'

import { OfflineModel } from '../src/offline_model.ts'

type Call = readonly [id: string, name: string, input: string]

/** Plays the calls of a step, each in reasoning of its own, then says "Done.". */
export class CallingModel extends OfflineModel {
  readonly name: string
  readonly #steps: Call[][]
  /** The messages of each request. */
  readonly requests: Message[][] = []

  constructor(steps: Call[][], name = 'calling') {
    super()
    this.#steps = steps
    this.name = name
  }

  override getConfig() {
    return { ...super.getConfig(), modelId: this.name }
  }

  override async *stream(
    messages: Message[],
    _options?: StreamOptions,
  ): AsyncIterable<ModelStreamEvent> {
    this.requests.push(messages)
    const calls = this.#steps.shift()
    yield { type: 'modelMessageStartEvent', role: 'assistant' }
    yield { type: 'modelContentBlockStartEvent' }
    const said = { type: 'textDelta' as const, text: 'Done.' }
    const thought = { type: 'reasoningContentDelta' as const, text: 'Hm.', signature: 'signed' }
    yield { type: 'modelContentBlockDeltaEvent', delta: calls ? thought : said }
    yield { type: 'modelContentBlockStopEvent' }
    for (const [toolUseId, name, input] of calls ?? []) {
      const start = { type: 'toolUseStart' as const, name, toolUseId }
      yield { type: 'modelContentBlockStartEvent', start }
      const half = Math.floor(input.length / 2)
      for (const part of [input.slice(0, half), input.slice(half)]) {
        const delta = { type: 'toolUseInputDelta' as const, input: part }
        yield { type: 'modelContentBlockDeltaEvent', delta }
      }
      yield { type: 'modelContentBlockStopEvent' }
    }
    yield { type: 'modelMessageStopEvent', stopReason: calls ? 'toolUse' : 'endTurn' }
  }
}
