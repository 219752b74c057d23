// What the widget and the agent exchange: the session of a visitor, prompts, and the history.

import { DefaultChatTransport, type UIMessage } from 'ai'

const API = '/api/chat'

/** Return the id of the visitor's session, which stays the same when the page is loaded again. */
export function sessionId(): string {
  const id = localStorage.getItem('support-session') ?? crypto.randomUUID()
  localStorage.setItem('support-session', id)
  return id
}

/** Sends the last message only: the agent has the others in its session. */
export const transport = new DefaultChatTransport<UIMessage>({
  api: API,
  prepareSendMessagesRequest: ({ id, messages, trigger, messageId }) => ({
    body: { id, messages: messages.slice(-1), trigger, messageId },
  }),
})

/** Return the messages of a session; none if it is new, or if they cannot be loaded. */
export async function loadMessages(id: string): Promise<UIMessage[]> {
  const response = await fetch(`${API}?id=${id}`).catch(() => null)
  return response?.ok ? await response.json() : []
}

/** Return the text of a message, without its calls of tools. */
export function textOf({ parts }: UIMessage): string {
  return parts.map((part) => (part.type === 'text' ? part.text : '')).join('')
}
