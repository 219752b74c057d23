// Stubbed tools and a scripted model for Strands.

import { FunctionTool, Message, type ModelStreamEvent, type Tool } from '@strands-agents/sdk'
import type { MessageData } from '@strands-agents/sdk'

import { OfflineModel } from '../echo_model.ts'
import { toolsOf } from '../turn.ts'
import type { Step, StoredTurn } from './cases.ts'

type Answer = (input: unknown) => Promise<string>

/** Return the names of tools. */
export function namesOf(tools: readonly Tool[]): string[] {
  return tools.map(({ name }) => name)
}

/** Return the tools; an answer from `answerOf` replaces the code of a tool. */
export function stubTools(
  tools: readonly Tool[],
  answerOf: (name: string) => Answer | undefined,
): Tool[] {
  return tools.map((tool) => {
    const callback = answerOf(tool.name)
    const { name, description, toolSpec } = tool
    const { inputSchema = { type: 'object' } } = toolSpec
    return callback ? new FunctionTool({ name, description, inputSchema, callback }) : tool
  })
}

/** Return a model whose calls reply with the next step, which is text or a tool call. */
export function scriptedModel(steps: readonly (string | Step)[]): OfflineModel {
  return new ScriptedModel(steps)
}

class ScriptedModel extends OfflineModel {
  readonly #steps: (string | Step)[]

  constructor(steps: readonly (string | Step)[]) {
    super()
    this.#steps = [...steps]
  }

  override async *stream(messages: Message[]): AsyncIterable<ModelStreamEvent> {
    const step = this.#steps.shift() ?? ''
    yield { type: 'modelMessageStartEvent', role: 'assistant' }
    if (typeof step === 'string') {
      yield { type: 'modelContentBlockStartEvent' }
      yield { type: 'modelContentBlockDeltaEvent', delta: { type: 'textDelta', text: step } }
    } else {
      const start = { name: step.tool, toolUseId: `call_${messages.length}` }
      const input = JSON.stringify(step.input ?? {})
      yield { type: 'modelContentBlockStartEvent', start: { type: 'toolUseStart', ...start } }
      yield { type: 'modelContentBlockDeltaEvent', delta: { type: 'toolUseInputDelta', input } }
    }
    yield { type: 'modelContentBlockStopEvent' }
    const stopReason = typeof step === 'string' ? 'endTurn' : 'toolUse'
    yield { type: 'modelMessageStopEvent', stopReason }
  }
}

/** Return the turns of a stored session: prompt, tool calls and reply. */
export function turnsOf(messages: readonly unknown[]): StoredTurn[] {
  const turns: StoredTurn[] = []
  const calls = new Map<string, StoredTurn['calls'][number]>()
  for (const stored of messages) {
    const message = Message.fromMessageData(stored as MessageData)
    for (const block of message.content) {
      if (block.type !== 'textBlock') continue
      if (message.role === 'user') turns.push({ prompt: block.text, calls: [], reply: '' })
      else if (turns.length > 0) turns.at(-1)!.reply += block.text
    }
    for (const use of toolsOf(message)) {
      if ('input' in use) {
        const call = { tool: use.name, input: use.input, answer: '', failed: false }
        calls.set(use.id, call)
        turns.at(-1)?.calls.push(call)
      } else {
        Object.assign(calls.get(use.id) ?? {}, { answer: use.text, failed: use.isError })
      }
    }
  }
  return turns
}
