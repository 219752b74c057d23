// Converts messages of the AI SDK for summaries.

import type { ModelMessage } from 'ai'

import { textOf } from '../echo_model.ts'
import { filesIn } from '../file_parts.ts'
import type { Utterance } from './summary.ts'

/** Yield the texts, names of files, tool calls and tool results of stored messages. */
export function* read(messages: unknown[]): Generator<Utterance> {
  for (const { role, content } of messages as ModelMessage[]) {
    for (const { name, mediaType } of filesIn({ content })) {
      yield [role, `[A file: ${name || mediaType}]`]
    }
    for (const part of typeof content === 'string' ? [content] : content) {
      if (typeof part === 'string') {
        yield [role, part]
      } else if (part.type === 'text') {
        yield [role, part.text]
      } else if (part.type === 'tool-call') {
        yield [role, { id: part.toolCallId, name: part.toolName, input: part.input }]
      } else if (part.type === 'tool-result') {
        const { toolCallId: id, output } = part
        const isError = /^(error|execution-denied)/.test(output.type)
        yield [role, { id, text: textOf(output), isError }]
      }
    }
  }
}

/** Return texts as stored messages. */
export function write(texts: ['user' | 'assistant', string][]): unknown[] {
  return texts.map(([role, content]) => ({ role, content }))
}
