// Shortens long requests with the AI SDK: a call is repeated with a shorter prompt.

import type { ModelMessage } from 'ai'

import { cutResult, type CuttableResult, lengthOf, type Shortening } from './context_length.ts'
import type { Call } from '../echo_model.ts'

type Prompt = Call['prompt']
type Item = { type: string; toolCallId?: string; output?: Output }
type Output = { type: string; value?: unknown }
type Sent = { role: string; content: unknown }

/** The prompts of a turn, shortened after rejections. */
export class ShorterPrompts {
  readonly #shortening: Shortening
  /** The remaining characters of cut results by call id. */
  readonly #sizes = new Map<string, number>()

  constructor(shortening: Shortening) {
    this.#shortening = shortening
  }

  /** Return a shorter prompt after a rejection. Rethrows errors with other reasons. */
  async shorten(error: unknown, prompt: Prompt): Promise<Prompt> {
    const start = prompt.findLastIndex(({ role }) => role === 'user')
    const results = prompt.slice(start).flatMap((message) => {
      return message.role === 'tool' ? this.#resultsIn(message.content as Item[]) : []
    })
    if (!(await this.#shortening.shorten(error, results))) throw error
    return this.apply(prompt)
  }

  /** Return a prompt with the remaining history. */
  apply(prompt: Prompt): Prompt {
    const { isNeeded, stage } = this.#shortening
    if (!isNeeded) return prompt
    const { at, data, turns } = stage
    const front = data.messages.slice(0, turns[0]?.at ?? at) as Sent[]
    const users = prompt.flatMap(({ role }, index) => (role === 'user' ? [index] : []))
    const first = users[0] ?? 0
    const kept = users.at(-1 - turns.length) ?? first
    const messages = [...prompt.slice(0, first), ...front.map(asPrompt), ...prompt.slice(kept)]
    return this.cut(messages as ModelMessage[]) as Prompt
  }

  /** Return messages with the cut results. */
  cut(messages: readonly ModelMessage[]): ModelMessage[] {
    if (this.#sizes.size === 0) return [...messages]
    return messages.map((message) => {
      if (message.role !== 'tool') return message
      const content = (message.content as Item[]).map((part) => this.#cutPart(part))
      return { ...message, content } as ModelMessage
    })
  }

  #cutPart(part: Item): Item {
    const size = this.#sizes.get(part.toolCallId ?? '')
    if (part.type !== 'tool-result' || !part.output || size === undefined) return part
    const { output } = part
    const value = cutResult(textOf(output), size)
    if (output.type !== 'content') {
      const type = output.type.startsWith('error') ? 'error-text' : 'text'
      return { ...part, output: { ...output, type, value } }
    }
    const files = (output.value as Item[]).filter(({ type }) => type !== 'text')
    return { ...part, output: { ...output, value: [{ type: 'text', text: value }, ...files] } }
  }

  #resultsIn(parts: Item[]): CuttableResult[] {
    return parts.flatMap(({ type, toolCallId: id, output }) => {
      if (type !== 'tool-result' || !id || !output) return []
      const cut = (kept: number) => void this.#sizes.set(id, kept)
      return [{ id, size: lengthOf(textOf(output)), cut }]
    })
  }
}

function textOf({ type, value }: Output): string {
  if (typeof value === 'string') return value
  if (type !== 'content') return JSON.stringify(value ?? null)
  return (value as { text?: string }[]).map(({ text }) => text ?? '').join('\n')
}

function asPrompt({ role, content }: Sent): Sent {
  return {
    role,
    content: typeof content === 'string' ? [{ type: 'text', text: content }] : content,
  }
}
