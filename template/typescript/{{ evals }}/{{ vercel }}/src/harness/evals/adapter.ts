// Stubbed tools and a scripted model for the AI SDK.

import type { ModelMessage, Tool } from 'ai'

import { type Call, finish, OfflineModel, type Part, textOf } from '../echo_model.ts'
import type { Step, StoredTurn } from './cases.ts'

type Answer = (input: unknown) => Promise<string>

/** Return the names of tools. */
export function namesOf(tools: object): string[] {
  return Object.keys(tools)
}

/** Return the tools; an answer from `answerOf` replaces the code of a tool. */
export function stubTools(
  tools: Record<string, Tool>,
  answerOf: (name: string) => Answer | undefined,
): Record<string, Tool> {
  const named = Object.entries(tools).map(([name, tool]) => {
    const execute = answerOf(name)
    return [name, execute ? ({ ...tool, execute } as Tool) : tool]
  })
  return Object.fromEntries(named)
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

  override async *answer({ prompt }: Call): AsyncGenerator<Part> {
    const step = this.#steps.shift() ?? ''
    if (typeof step === 'string') {
      yield { type: 'text-start', id: '1' }
      yield { type: 'text-delta', id: '1', delta: step }
      yield { type: 'text-end', id: '1' }
    } else {
      const input = JSON.stringify(step.input ?? {})
      yield { type: 'tool-call', toolCallId: `call_${prompt.length}`, toolName: step.tool, input }
    }
    yield finish(typeof step === 'string' ? 'stop' : 'tool-calls')
  }
}

/** Return the turns of a stored session: prompt, tool calls and reply. */
export function turnsOf(messages: readonly unknown[]): StoredTurn[] {
  const turns: StoredTurn[] = []
  const calls = new Map<string, StoredTurn['calls'][number]>()
  for (const { role, content } of messages as ModelMessage[]) {
    const parts = typeof content === 'string' ? [{ type: 'text' as const, text: content }] : content
    const text = parts.map((part) => (part.type === 'text' ? part.text : '')).join('')
    if (role === 'user') turns.push({ prompt: text, calls: [], reply: '' })
    const turn = turns.at(-1)
    if (!turn) continue
    if (role === 'assistant') turn.reply += text
    for (const part of parts) {
      if (part.type === 'tool-call') {
        const call = { tool: part.toolName, input: part.input, answer: '', failed: false }
        calls.set(part.toolCallId, call)
        turn.calls.push(call)
      } else if (part.type === 'tool-result') {
        const answer = textOf(part.output)
        const failed = /^(error|execution-denied)/.test(part.output.type)
        Object.assign(calls.get(part.toolCallId) ?? {}, { answer, failed })
      }
    }
  }
  return turns
}
