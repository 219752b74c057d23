// Reads stored messages of Strands Agents for a page.

import { Message, type MessageData } from '@strands-agents/sdk'

import type { File, ToolCall, ToolResult } from '../contract.ts'
import { filesIn } from '../file_parts.ts'
import { toolsOf } from '../turn.ts'

type Chunk = string | ToolCall | ToolResult

/** Return the prompt, its files and the emitted chunks of each turn. */
export function readTurns(messages: unknown[]): [string, File[], Chunk[]][] {
  const turns: [string, File[], Chunk[]][] = []
  for (const stored of messages as MessageData[]) {
    const message = Message.fromJSON(stored)
    const { metadata } = message
    const chunks = message.content.flatMap((block): Chunk[] => {
      if (block.type === 'textBlock') return [block.text]
      return [...toolsOf({ content: [block], ...(metadata && { metadata }) })]
    })
    const isPrompt = message.role === 'user' && typeof chunks[0] === 'string'
    const prompt = chunks.filter((chunk) => typeof chunk === 'string').join('')
    if (isPrompt) turns.push([prompt, filesIn(stored), []])
    else turns.at(-1)?.[2].push(...chunks)
  }
  return turns
}
