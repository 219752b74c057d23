// The stored messages of the AI SDK, as a page is to show them.

import type { ModelMessage } from 'ai'

import type { ToolCall, ToolResult } from '../contract.ts'
import { textOf } from '../echo_model.ts'

type Content = Exclude<ModelMessage['content'], string>

type Chunk = string | ToolCall | ToolResult

/** Return the prompt of each turn, and what it emitted. */
export function readTurns(messages: unknown[]): [string, Chunk[]][] {
  const turns: [string, Chunk[]][] = []
  for (const { role, content } of messages as ModelMessage[]) {
    const chunks = typeof content === 'string' ? [content] : content.flatMap(chunksOf)
    if (role === 'user')
      turns.push([chunks.filter((chunk) => typeof chunk === 'string').join(''), []])
    else turns.at(-1)?.[1].push(...chunks)
  }
  return turns
}

function chunksOf(part: Content[number]): Chunk[] {
  if (part.type === 'text') return [part.text]
  if (part.type === 'tool-call') {
    // Of a call that did not run because its arguments were no JSON object: what the model sent.
    const received = part.providerOptions?.producer?.received
    return [{ id: part.toolCallId, name: part.toolName, input: received ?? part.input }]
  }
  if (part.type !== 'tool-result') return []
  const { toolCallId: id, output } = part
  const isError = /^(error|execution-denied)/.test(output.type)
  const json = output.type === 'json' && { value: output.value }
  return [{ id, text: textOf(output), isError, ...json }]
}
