// Converts messages of Strands Agents for summaries.

import { Message, type MessageData } from '@strands-agents/sdk'

import { filesIn } from '../file_parts.ts'
import { toolsOf } from '../turn.ts'
import type { Utterance } from './summary.ts'

/** Yield the texts, names of files, tool calls and tool results of stored messages. */
export function* read(messages: unknown[]): Generator<Utterance> {
  for (const stored of messages as MessageData[]) {
    const { role, content, metadata } = Message.fromJSON(stored)
    for (const { name, mediaType } of filesIn(stored))
      yield [role, `[A file: ${name || mediaType}]`]
    for (const block of content) {
      if (block.type === 'textBlock') yield [role, block.text]
      const part = { content: [block], ...(metadata && { metadata }) }
      for (const chunk of toolsOf(part)) yield [role, chunk]
    }
  }
}

/** Return texts as stored messages. */
export function write(texts: ['user' | 'assistant', string][]): unknown[] {
  return texts.map(([role, text]) => ({ role, content: [{ text }] }))
}
