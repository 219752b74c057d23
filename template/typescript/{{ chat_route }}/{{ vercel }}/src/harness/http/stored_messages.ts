// Reads stored messages of the AI SDK for a page.

import type { ModelMessage } from 'ai'

import type { File, ToolCall, ToolResult } from '../contract.ts'
import { textOf } from '../echo_model.ts'
import { filesIn } from '../file_parts.ts'

type Content = Exclude<ModelMessage['content'], string>

type Chunk = string | ToolCall | ToolResult

/** Return the prompt, its files and the emitted chunks of each turn. */
export function readTurns(messages: unknown[]): [string, File[], Chunk[]][] {
  const turns: [string, File[], Chunk[]][] = []
  for (const { role, content } of messages as ModelMessage[]) {
    const chunks = typeof content === 'string' ? [content] : content.flatMap(chunksOf)
    const prompt = chunks.filter((chunk) => typeof chunk === 'string').join('')
    if (role === 'user') turns.push([prompt, filesIn({ content }), []])
    else turns.at(-1)?.[2].push(...chunks)
  }
  return turns
}

function chunksOf(part: Content[number]): Chunk[] {
  if (part.type === 'text') return [part.text]
  if (part.type === 'tool-call') {
    // The raw arguments of a call that could not run: the model sent no JSON object.
    const received = part.providerOptions?.producer?.received
    return [{ id: part.toolCallId, name: part.toolName, input: received ?? part.input }]
  }
  if (part.type !== 'tool-result') return []
  const { toolCallId: id, output } = part
  const isError = /^(error|execution-denied)/.test(output.type)
  const json = output.type === 'json' && { value: output.value }
  const files = output.type === 'content' ? filesIn({ content: output.value }) : []
  return [{ id, text: textOf(output), isError, ...json, ...(files.length > 0 && { files }) }]
}
