// An agent with a tool that providers refuse.

import { FunctionTool, type JSONSchema } from '@strands-agents/sdk'

export const SYSTEM_PROMPT = 'You are a helpful assistant.'

const point = { type: 'array', items: [{ type: 'number' }, { type: 'number' }] }

export const TOOLS = [
  new FunctionTool({
    name: 'draw',
    description: 'x'.repeat(1100),
    inputSchema: { type: 'object', properties: { point } } as JSONSchema,
    callback: () => 'ok',
  }),
]
