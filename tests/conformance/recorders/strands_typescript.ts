// An agent whose tools record each run with its session and input.

import { appendFileSync } from 'node:fs'
import { join } from 'node:path'

import { tool } from '@strands-agents/sdk'
import { z } from 'zod'

import { currentTurn } from './harness/index.ts'

export const SYSTEM_PROMPT = 'You are a helpful assistant. Answer briefly and in plain words.'

const RUNS = join(process.env.HOME ?? '.', 'runs')

function record(name: string, input: object): void {
  const line = JSON.stringify({ session: currentTurn().sessionId, tool: name, input })
  appendFileSync(RUNS, `${line}\n`)
}

const wordCount = tool({
  name: 'word_count',
  description: 'Count the words of a text.',
  inputSchema: z.object({ text: z.string() }),
  callback: ({ text }) => {
    record('word_count', { text })
    return text.match(/\S+/g)?.length ?? 0
  },
})

const deleteOrders = tool({
  name: 'delete_orders',
  description: 'Delete the orders of a customer, or of all customers.',
  inputSchema: z.object({ customer: z.string().nullable().default(null) }),
  callback: ({ customer }) => {
    record('delete_orders', { customer })
    return `deleted orders of ${customer ?? 'ALL CUSTOMERS'}`
  },
})

const listOrders = tool({
  name: 'list_orders',
  description: 'List the orders of all customers.',
  inputSchema: z.object({}),
  callback: () => {
    record('list_orders', {})
    return 'no orders'
  },
})

export const TOOLS = [wordCount, deleteOrders, listOrders]
