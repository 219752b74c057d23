// A scripted model.

import { abortOf } from '../../src/harness/deadline.ts'
import { type Call, finish, OfflineModel, type Part } from '../../src/harness/echo_model.ts'
import { type Answer, reply } from './script.ts'

const STOP_REASONS = {
  tool_call: 'tool-calls',
  length: 'length',
  filter: 'content-filter',
  cut: null, // the stream ends without a reason
} as const
// The same names as in the other framework.
const KINDS: Record<string, string> = {
  file: '(image)',
  reasoning: '(reasoning)',
  'tool-call': '(toolUse)',
  'tool-result': '(toolResult)',
}

/** Sends the next answer of the script per request; after the last, replies "ok". */
export class ScriptedModel extends OfflineModel {
  script: Answer[]
  /** The messages of each request. */
  readonly requests: Call['prompt'][] = []
  override readonly modelId: string

  constructor(script: readonly Answer[] = [], name = 'scripted') {
    super()
    this.script = [...script]
    this.modelId = name
  }

  /** The texts of each request; other parts become their kind, as in "(toolUse)". */
  get conversations(): string[][] {
    return this.requests.map((messages) => {
      const turns = messages.filter(({ role }) => role !== 'system')
      const parts = turns.flatMap(({ content }) => content as { type: string; text?: string }[])
      return parts.map(({ type, text = '' }) => KINDS[type] ?? text)
    })
  }

  override async doStream(options: Call) {
    const parts = this.answer(options)
    await parts.next() // rejects if the first step is `fail`
    return { stream: ReadableStream.from(parts) }
  }

  override async *answer({ prompt, abortSignal }: Call): AsyncGenerator<Part> {
    this.requests.push(prompt)
    const steps = [this.script.shift() ?? reply('ok')].flat()
    const [first] = steps
    if (first?.type === 'fail') throw first.error
    let stopReason: Parameters<typeof finish>[0] | null = 'stop'
    yield { type: 'stream-start', warnings: [] }
    for (const [index, step] of steps.entries()) {
      const id = `${index}`
      switch (step.type) {
        case 'reply':
          yield* streamText(id, step.texts)
          break
        case 'reasoning':
          yield* streamReasoning(id, step.text)
          break
        case 'toolCall':
          yield { type: 'tool-call', toolCallId: step.id, toolName: step.name, input: step.input }
          stopReason = 'tool-calls'
          break
        case 'wait':
          await waitFor(step.promise, abortSignal)
          break
        case 'fail':
          throw step.error
        case 'stop':
          stopReason = STOP_REASONS[step.reason]
      }
    }
    if (stopReason) yield finish(stopReason)
  }
}

function* streamText(id: string, texts: string[]): Generator<Part> {
  yield { type: 'text-start', id }
  for (const delta of texts) yield { type: 'text-delta', id, delta }
  yield { type: 'text-end', id }
}

function* streamReasoning(id: string, text: string): Generator<Part> {
  yield { type: 'reasoning-start', id }
  yield { type: 'reasoning-delta', id, delta: text }
  yield { type: 'reasoning-end', id, providerMetadata: { vendor: { signature: 'signed' } } }
}

async function waitFor(promise: Promise<unknown>, signal?: AbortSignal): Promise<void> {
  await (signal ? Promise.race([promise, abortOf(signal)]) : promise)
}
