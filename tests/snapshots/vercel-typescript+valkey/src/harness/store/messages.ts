// The form of the stored messages of this agent's framework.

import { modelMessageSchema } from 'ai'
import { z } from 'zod'

const Messages = z.array(modelMessageSchema)

/** Whether these are messages of this framework that include a prompt. */
export function areMessages(messages: unknown): boolean {
  const { success, data = [] } = Messages.safeParse(messages)
  return success && data.some(({ role }) => role === 'user')
}
