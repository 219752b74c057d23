// An agent with a tool that providers refuse: zod writes a tuple as draft 07 does.

import { tool } from 'ai'
import { z } from 'zod'

export const SYSTEM_PROMPT = 'You are a helpful assistant.'

export const TOOLS = {
  draw: tool({
    description: 'x'.repeat(1100),
    inputSchema: z.object({ point: z.tuple([z.number(), z.number()]) }),
    execute: () => 'ok',
  }),
}
