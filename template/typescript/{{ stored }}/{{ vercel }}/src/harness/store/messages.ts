// Validates stored messages of the AI SDK.

import { modelMessageSchema } from 'ai'
import { z } from 'zod'

const Messages = z.array(modelMessageSchema)

/** Return whether `messages` are valid for this framework and include a prompt. */
export function areMessages(messages: unknown): boolean {
  const { success, data = [] } = Messages.safeParse(messages)
  return success && data.some(({ role }) => role === 'user')
}
