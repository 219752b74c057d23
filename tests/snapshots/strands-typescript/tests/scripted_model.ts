// A model that plays a script, for the tests of every framework in the same words.

import { setTimeout as sleep } from 'node:timers/promises'

import type { Message, ModelStreamEvent, StreamOptions } from '@strands-agents/sdk'

import { OfflineModel } from '../src/offline_model.ts'

export type Step = (string | number | Error | [keyof typeof STOPS])[]

const STOPS = {
  call: 'toolUse',
  bare: 'toolUse',
  length: 'maxTokens',
  filter: 'contentFiltered',
  cut: null,
}

/**
 * Plays a step of `script` for each call, then "ok"; `calls` are the conversations it was given.
 *
 * A step lists texts to say, seconds to wait, errors to throw and, if it is not the end of the
 * turn, how it stops: ['call'] for a tool, ['bare'] for one without a call, ['length'],
 * ['filter'] or ['cut'].
 */
export class ScriptedModel extends OfflineModel {
  script: Step[]
  readonly calls: string[] = []

  constructor(script: Step[]) {
    super()
    this.script = [...script]
  }

  override async *stream(
    messages: Message[],
    options?: StreamOptions,
  ): AsyncIterable<ModelStreamEvent> {
    const told = messages.flatMap((message) => message.content)
    const words = told.map((block) =>
      block.type === 'textBlock' ? block.text : `(${block.type.replace('Block', '')})`,
    )
    this.calls.push(words.join(' '))
    const step = this.script.shift() ?? ['ok']
    let stopReason: string | null = 'endTurn'
    let calls = false
    yield { type: 'modelMessageStartEvent', role: 'assistant' }
    for (const item of step) {
      if (item instanceof Error) throw item
      if (typeof item === 'number') {
        const signal = options?.cancelSignal
        await sleep(item * 1000, null, signal ? { signal } : {})
      } else if (typeof item === 'string') {
        yield { type: 'modelContentBlockStartEvent' }
        yield { type: 'modelContentBlockDeltaEvent', delta: { type: 'textDelta', text: item } }
        yield { type: 'modelContentBlockStopEvent' }
      } else {
        stopReason = STOPS[item[0]]
        calls = item[0] === 'call'
      }
    }
    if (calls) {
      const start = { type: 'toolUseStart' as const, name: 'word_count', toolUseId: '1' }
      yield { type: 'modelContentBlockStartEvent', start }
      yield { type: 'modelContentBlockStopEvent' }
    }
    if (stopReason) yield { type: 'modelMessageStopEvent', stopReason }
  }
}
