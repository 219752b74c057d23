// A scripted model.

import type { Message, ModelStreamEvent, StreamOptions } from '@strands-agents/sdk'

import { abortOf } from '../../src/harness/deadline.ts'
import { OfflineModel } from '../../src/harness/echo_model.ts'
import { type Answer, reply, type Step } from './script.ts'

const STOP_REASONS = {
  tool_call: 'toolUse',
  length: 'maxTokens',
  filter: 'contentFiltered',
  cut: null, // the stream ends without a reason
}

/** Sends the next answer of the script per request; after the last, replies "ok". */
export class ScriptedModel extends OfflineModel {
  script: Answer[]
  /** The messages of each request. */
  readonly requests: Message[][] = []
  readonly name: string

  constructor(script: readonly Answer[] = [], name = 'scripted') {
    super()
    this.script = [...script]
    this.name = name
  }

  /** The texts of each request; other parts become their kind, as in "(toolUse)". */
  get conversations(): string[][] {
    return this.requests.map((messages) => {
      const blocks = messages.flatMap((message) => message.content)
      return blocks.map((block) => {
        return block.type === 'textBlock' ? block.text : `(${block.type.replace('Block', '')})`
      })
    })
  }

  override getConfig() {
    return { ...super.getConfig(), modelId: this.name }
  }

  override async *stream(
    messages: Message[],
    options?: StreamOptions,
  ): AsyncIterable<ModelStreamEvent> {
    this.requests.push([...messages])
    const steps = [this.script.shift() ?? reply('ok')].flat()
    const [first] = steps
    if (first?.type === 'fail') throw first.error
    let stopReason: string | null = 'endTurn'
    yield { type: 'modelMessageStartEvent', role: 'assistant' }
    for (const step of steps) {
      switch (step.type) {
        case 'reply':
          yield* streamText(step.texts)
          break
        case 'reasoning':
          yield* streamReasoning(step.text)
          break
        case 'toolCall':
          yield* streamCall(step)
          stopReason = 'toolUse'
          break
        case 'wait':
          await waitFor(step.promise, options?.cancelSignal)
          break
        case 'fail':
          throw step.error
        case 'stop':
          stopReason = STOP_REASONS[step.reason]
      }
    }
    if (stopReason) yield { type: 'modelMessageStopEvent', stopReason }
  }
}

function* streamText(texts: string[]): Generator<ModelStreamEvent> {
  yield { type: 'modelContentBlockStartEvent' }
  for (const text of texts) {
    yield { type: 'modelContentBlockDeltaEvent', delta: { type: 'textDelta', text } }
  }
  yield { type: 'modelContentBlockStopEvent' }
}

function* streamReasoning(text: string): Generator<ModelStreamEvent> {
  const delta = { type: 'reasoningContentDelta' as const, text, signature: 'signed' }
  yield { type: 'modelContentBlockStartEvent' }
  yield { type: 'modelContentBlockDeltaEvent', delta }
  yield { type: 'modelContentBlockStopEvent' }
}

/** Stream a call with its arguments in two halves, as providers do. */
function* streamCall(call: Extract<Step, { type: 'toolCall' }>): Generator<ModelStreamEvent> {
  const { id, name, input } = call
  const start = { type: 'toolUseStart' as const, name, toolUseId: id }
  yield { type: 'modelContentBlockStartEvent', start }
  const middle = Math.floor(input.length / 2)
  for (const half of [input.slice(0, middle), input.slice(middle)]) {
    const delta = { type: 'toolUseInputDelta' as const, input: half }
    yield { type: 'modelContentBlockDeltaEvent', delta }
  }
  yield { type: 'modelContentBlockStopEvent' }
}

async function waitFor(promise: Promise<unknown>, signal?: AbortSignal): Promise<void> {
  await (signal ? Promise.race([promise, abortOf(signal)]) : promise)
}
