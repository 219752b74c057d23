// What the stored messages of this agent's framework look like.

import { type ModelMessage, modelMessageSchema } from 'ai'
import { z } from 'zod'

import { isBlank } from '../contract.ts'
import type { Item } from './memories.ts'

const Messages = z.array(modelMessageSchema)

/** Whether these are messages of this framework, beginning with a prompt. */
export function areMessages(messages: unknown): boolean {
  const { success, data = [] } = Messages.safeParse(messages)
  return success && data.some(({ role }) => role === 'user')
}

/** What was said in these messages, without what tools were told and answered. */
export function spoken(messages: readonly ModelMessage[]): Item[] {
  return messages.flatMap(({ role, content }) => {
    if (role !== 'user' && role !== 'assistant') return []
    const parts = typeof content === 'string' ? [{ type: 'text', text: content } as const] : content
    return parts.flatMap((part): Item[] => {
      if (part.type !== 'text' || isBlank(part.text)) return []
      return [[role === 'user' ? 'USER' : 'ASSISTANT', part.text]]
    })
  })
}
