// The agent of the random schedules: one tool runs at once, another one asks for an approval.

import { tool } from 'ai'
import { z } from 'zod'

export const SYSTEM_PROMPT = 'You are a helpful assistant.'
export const hooks = { ran: (_id: string): void => {} }

const inputSchema = z.object({ order_id: z.string() })
export const TOOLS = {
  look_up: tool({
    description: 'Look up an order.',
    inputSchema,
    execute: async ({ order_id }) => {
      await null
      hooks.ran(order_id)
      return 'found'
    },
  }),
  delete_order: tool({
    description: 'Delete an order.',
    inputSchema,
    execute: ({ order_id }) => {
      hooks.ran(order_id)
      return 'deleted'
    },
  }),
}
export const TOOL_APPROVAL = { delete_order: 'user-approval' }

/** What a model streams in place of a part, so that it calls these tools, by name and id. */
export function withCalls(part: any, calls: [name: string, id: string][]): any[] {
  if (part.type !== 'tool-call') return [part]
  return calls.map(([toolName, toolCallId]) => {
    return { ...part, toolName, toolCallId, input: JSON.stringify({ order_id: toolCallId }) }
  })
}
