// What the stored messages of this agent's framework look like.

import { Message, type MessageData } from '@strands-agents/sdk'

import { isBlank } from '../contract.ts'
import type { Item } from './memories.ts'

/** Whether these are messages of this framework, beginning with a prompt. */
export function areMessages(messages: unknown): boolean {
  try {
    const given = messages as MessageData[]
    if (given.some(({ content }) => content.some((block) => 'type' in block))) return false
    const read = given.map((message) => Message.fromJSON(message))
    return read.some(({ role, content }) => role === 'user' && content[0]?.type === 'textBlock')
  } catch {
    return false // of whatever type the framework throws for what it does not know
  }
}

/** What was said in these messages, without what tools were told and answered. */
export function spoken(messages: readonly Message[]): Item[] {
  return messages.flatMap(({ role, content }) =>
    content.flatMap((block): Item[] => {
      if (block.type !== 'textBlock' || isBlank(block.text)) return []
      return [[role === 'user' ? 'USER' : 'ASSISTANT', block.text]]
    }),
  )
}
