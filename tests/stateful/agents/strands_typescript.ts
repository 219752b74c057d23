// The agent of the random schedules: one tool runs at once, another one asks for an approval.

import { tool } from '@strands-agents/sdk'
import { HumanInTheLoop } from '@strands-agents/sdk/vended-interventions/hitl'
import { z } from 'zod'

export const SYSTEM_PROMPT = 'You are a helpful assistant.'
export const hooks = { ran: (_id: string): void => {} }

const inputSchema = z.object({ order_id: z.string() })
const lookUp = tool({
  name: 'look_up',
  description: 'Look up an order.',
  inputSchema,
  callback: async ({ order_id }, context) => {
    await null
    hooks.ran(order_id)
    context?.agent.appState.set('seen', order_id)
    return 'found'
  },
})
const deleteOrder = tool({
  name: 'delete_order',
  description: 'Delete an order.',
  inputSchema,
  callback: ({ order_id }) => {
    hooks.ran(order_id)
    return 'deleted'
  },
})
export const TOOLS = [lookUp, deleteOrder]
export const INTERVENTIONS = [new HumanInTheLoop({ allowedTools: ['look_up'] })]

/** What a model streams in place of an event, so that it calls these tools, by name and id. */
export function withCalls(event: any, calls: [name: string, id: string][]): any[] {
  if (event.start?.type !== 'toolUseStart') return [event]
  const events = calls.flatMap(([name, toolUseId]) => {
    const input = JSON.stringify({ order_id: toolUseId })
    return [
      { type: 'modelContentBlockStartEvent', start: { type: 'toolUseStart', name, toolUseId } },
      { type: 'modelContentBlockDeltaEvent', delta: { type: 'toolUseInputDelta', input } },
      { type: 'modelContentBlockStopEvent' },
    ]
  })
  return events.slice(0, -1) // the last block is ended by the event that follows
}
