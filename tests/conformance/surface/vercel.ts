// Tools that emit, charge, yield, return objects, and end a turn.

import { setTimeout as sleep } from 'node:timers/promises'

import { tool } from 'ai'
import { z } from 'zod'

import { currentTurn, Data, Source } from './harness/index.ts'
import { misuse } from './misuse.ts'

export const SYSTEM_PROMPT = 'You are a helpful assistant.'
export const FINAL_TOOLS = ['hand_over', 'close']

const inputSchema = z.object({})

const work = tool({
  description: 'Work.',
  inputSchema,
  execute: async () => {
    const turn = currentTurn()
    await turn.emit(new Data('step', { done: 1 }))
    await turn.emit(new Source('https://example.com/a', 'A'))
    turn.charge({ inputTokens: 1000, outputTokens: 10 })
    return 'worked'
  },
})
const steps = tool({
  description: 'Work in steps.',
  inputSchema,
  execute: async function* () {
    yield { step: 1 }
    yield { step: 2 }
    yield 'all steps'
  },
})
const report = tool({ description: 'Report.', inputSchema, execute: () => ({ total: 3 }) })
const handOver = tool({
  description: 'Hand over.',
  inputSchema: z.object({
    fails: z.boolean().default(false),
    text: z.string().default('A person will call you.'),
    times: z.number().default(1),
    wait: z.number().default(0),
  }),
  execute: async ({ fails, text, times, wait }) => {
    if (fails) throw new Error('nobody is there')
    await sleep(wait)
    return text.repeat(times)
  },
})
const close = tool({
  description: 'Close the case.',
  inputSchema,
  execute: () => 'The case is closed.',
})
const odd = tool({
  description: 'Work in odd steps.',
  inputSchema,
  execute: async function* () {
    yield new Date()
    yield NaN
    yield { step: 3 }
    yield 'all steps'
  },
})
const wrong = tool({ description: 'Misuse.', inputSchema, execute: misuse })

export const TOOLS = { work, steps, report, hand_over: handOver, close, odd, misuse: wrong }
