// Tools that emit, charge, yield, return objects, and end a turn.

import { tool } from '@strands-agents/sdk'
import { z } from 'zod'

import { currentTurn, Data, Source } from './harness/index.ts'

export const SYSTEM_PROMPT = 'You are a helpful assistant.'
export const FINAL_TOOLS = ['hand_over']

const inputSchema = z.object({})

const work = tool({
  name: 'work',
  description: 'Work.',
  inputSchema,
  callback: async () => {
    const turn = currentTurn()
    await turn.emit(new Data('step', { done: 1 }))
    await turn.emit(new Source('https://example.com/a', 'A'))
    turn.charge({ inputTokens: 1000, outputTokens: 10 })
    return 'worked'
  },
})
const steps = tool({
  name: 'steps',
  description: 'Work in steps.',
  inputSchema,
  callback: async function* () {
    yield { step: 1 }
    yield { step: 2 }
    return 'all steps'
  },
})
const report = tool({
  name: 'report',
  description: 'Report.',
  inputSchema,
  callback: () => ({ total: 3 }),
})
const handOver = tool({
  name: 'hand_over',
  description: 'Hand over.',
  inputSchema: z.object({ fails: z.boolean().default(false) }),
  callback: ({ fails }) => {
    if (fails) throw new Error('nobody is there')
    return 'A person will call you.'
  },
})

export const TOOLS = [work, steps, report, handOver]
