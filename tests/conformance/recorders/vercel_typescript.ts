// An agent whose tools record each run with its session and input.

import { appendFileSync } from 'node:fs'
import { join } from 'node:path'

import { tool } from 'ai'
import { z } from 'zod'

import { currentTurn } from './harness/index.ts'

export const SYSTEM_PROMPT = 'You are a helpful assistant. Answer briefly and in plain words.'

const RUNS = join(process.env.HOME ?? '.', 'runs')

function record(name: string, input: object): void {
  const line = JSON.stringify({ session: currentTurn().sessionId, tool: name, input })
  appendFileSync(RUNS, `${line}\n`)
}

const wordCount = tool({
  description: 'Count the words of a text.',
  inputSchema: z.object({ text: z.string() }),
  execute: ({ text }) => {
    record('word_count', { text })
    return text.match(/\S+/g)?.length ?? 0
  },
})

const deleteOrders = tool({
  description: 'Delete the orders of a customer, or of all customers.',
  inputSchema: z.object({ customer: z.string().nullable().default(null) }),
  execute: ({ customer }) => {
    record('delete_orders', { customer })
    return `deleted orders of ${customer ?? 'ALL CUSTOMERS'}`
  },
})

const listOrders = tool({
  description: 'List the orders of all customers.',
  inputSchema: z.object({}),
  execute: () => {
    record('list_orders', {})
    return 'no orders'
  },
})

export const TOOLS = { word_count: wordCount, delete_orders: deleteOrders, list_orders: listOrders }
