// Reads stored messages of Strands Agents for a page.

import { Message, type MessageData } from '@strands-agents/sdk'

import type { ToolCall, ToolResult } from '../contract.ts'
import { toolsOf } from '../turn.ts'

type Chunk = string | ToolCall | ToolResult

/** Return the prompt and the emitted chunks of each turn. */
export function readTurns(messages: unknown[]): [string, Chunk[]][] {
  const turns: [string, Chunk[]][] = []
  for (const stored of messages as MessageData[]) {
    const message = Message.fromJSON(stored)
    const { metadata } = message
    const chunks = message.content.flatMap((block): Chunk[] => {
      if (block.type === 'textBlock') return [block.text]
      return [...toolsOf({ content: [block], ...(metadata && { metadata }) })]
    })
    const isPrompt = message.role === 'user' && typeof chunks[0] === 'string'
    if (isPrompt) turns.push([chunks.filter((chunk) => typeof chunk === 'string').join(''), []])
    else turns.at(-1)?.[1].push(...chunks)
  }
  return turns
}
