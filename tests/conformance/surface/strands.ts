// Tools that emit, charge, yield, return objects, and end a turn.

import { setTimeout as sleep } from 'node:timers/promises'

import { Agent, tool } from '@strands-agents/sdk'
import { z } from 'zod'

import { OfflineModel } from './harness/echo_model.ts'
import { currentTurn, Data, Source } from './harness/index.ts'
import { misuse } from './misuse.ts'

export const SYSTEM_PROMPT = 'You are a helpful assistant.'
export const FINAL_TOOLS = ['hand_over', 'close']

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
  inputSchema: z.object({
    fails: z.boolean().default(false),
    text: z.string().default('A person will call you.'),
    times: z.number().default(1),
    wait: z.number().default(0),
  }),
  callback: async ({ fails, text, times, wait }) => {
    if (fails) throw new Error('nobody is there')
    await sleep(wait)
    return text.repeat(times)
  },
})
const close = tool({
  name: 'close',
  description: 'Close the case.',
  inputSchema,
  callback: () => 'The case is closed.',
})
const odd = tool({
  name: 'odd',
  description: 'Work in odd steps.',
  inputSchema,
  callback: async function* () {
    yield new Date()
    yield NaN
    yield { step: 3 }
    return 'all steps'
  },
})
const wrong = tool({ name: 'misuse', description: 'Misuse.', inputSchema, callback: misuse })

const helper = new Agent({ model: new OfflineModel(), name: 'helper', printer: false })

export const TOOLS = [work, steps, report, handOver, close, odd, wrong, helper.asTool()]
