// Validates stored messages of Strands Agents.

import { Message, type MessageData } from '@strands-agents/sdk'

/** Return whether `messages` are valid for this framework and include a prompt. */
export function areMessages(messages: unknown): boolean {
  try {
    const data = messages as MessageData[]
    if (data.some(({ content }) => content.some((block) => 'type' in block))) return false
    const parsed = data.map((message) => Message.fromJSON(message))
    return parsed.some(({ role, content }) => role === 'user' && content[0]?.type === 'textBlock')
  } catch {
    return false // the framework throws various types of errors for unknown input
  }
}
