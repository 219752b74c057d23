// The stored messages of the AI SDK, as a page is to show them.

import type { ModelMessage, ToolResultPart } from 'ai'

import type { Chunk } from './contract.ts'

type Content = Exclude<ModelMessage['content'], string>

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
    return [{ id: part.toolCallId, name: part.toolName, input: part.input }]
  }
  if (part.type !== 'tool-result') return []
  const { toolCallId: id, output } = part
  const isError = /^(error|execution-denied)/.test(output.type)
  return [{ id, text: textOf(output), isError }]
}

/** Return the output of a tool as text; of a file its kind, as in `[image]`. */
function textOf(output: ToolResultPart['output']): string {
  if (output.type === 'content') {
    const texts = output.value.map((part) => {
      if (part.type === 'text') return part.text
      return `[${('mediaType' in part ? part.mediaType : part.type).split(/[/-]/)[0]}]`
    })
    return texts.join('\n')
  }
  const value = 'value' in output ? output.value : (output.reason ?? '')
  return typeof value === 'string' ? value : JSON.stringify(value)
}
