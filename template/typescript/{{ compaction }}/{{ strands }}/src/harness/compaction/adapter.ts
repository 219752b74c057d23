// Converts messages of Strands Agents for summaries.

import { Message, type MessageData } from '@strands-agents/sdk'

import { toolsOf } from '../turn.ts'
import type { Utterance } from './summary.ts'

/** Yield the texts, tool calls and tool results of stored messages. */
export function* read(messages: unknown[]): Generator<Utterance> {
  for (const stored of messages as MessageData[]) {
    const { role, content, metadata } = Message.fromJSON(stored)
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
