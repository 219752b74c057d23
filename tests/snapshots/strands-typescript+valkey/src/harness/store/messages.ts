// The form of the stored messages of this agent's framework.

import { Message, type MessageData } from '@strands-agents/sdk'

/** Whether these are messages of this framework that include a prompt. */
export function areMessages(messages: unknown): boolean {
  try {
    const given = messages as MessageData[]
    if (given.some(({ content }) => content.some((block) => 'type' in block))) return false
    const read = given.map((message) => Message.fromJSON(message))
    return read.some(({ role, content }) => role === 'user' && content[0]?.type === 'textBlock')
  } catch {
    return false // the framework throws errors of any type for what it does not know
  }
}
