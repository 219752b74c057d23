// The agent of this suite: tools that note their runs and know their turn.

import { once } from 'node:events'
import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { streamText, tool } from 'ai'
import { z } from 'zod'

import { currentTurn } from './harness/index.ts'
import { readSettings } from './harness/settings.ts'
import { buildModel } from './model.ts'

export const SYSTEM_PROMPT = 'You are a helpful assistant. Answer briefly and in plain words.'

const RUNS = join(process.env.HOME ?? '.', 'runs')
const GATES = join(process.env.HOME ?? '.', 'gates') // the tools that ask, by session
const ASKING = ['delete_order', 'pay', 'refund']
const { WITHOUT } = process.env // the tool that a deployment has removed

/** Whether a tool asks for an approval in this turn. */
function asks(tool: string): boolean {
  const gates = existsSync(GATES) ? JSON.parse(readFileSync(GATES, 'utf8')) : {}
  return (gates[currentTurn().sessionId] ?? ASKING).includes(tool)
}

function note(line: string): void {
  appendFileSync(RUNS, `${line}\n`)
}

/** Wait until two turns are here. */
async function meet(name: string): Promise<void> {
  note(`meet ${name}`)
  for (let tries = 0; tries < 400; tries++) {
    const lines = readFileSync(RUNS, 'utf8').split('\n')
    if (lines.filter((line) => line === `meet ${name}`).length > 1) return
    await sleep(50)
  }
}

function caller(): string {
  const { actor, sessionId, number, key } = currentTurn()
  return `${actor ?? 'None'} ${sessionId} ${number} ${key ?? 'None'}`
}

async function nested(): Promise<string> {
  await sleep(1)
  return caller()
}

async function myOrders(place: string): Promise<string> {
  const before = caller()
  await meet(place)
  const later = new Promise<string>((resolve) => setTimeout(() => resolve(caller()), 1))
  return `orders of ${[...new Set([before, caller(), await nested(), await later])].join(' and ')}`
}

async function waitForTheEnd(name: string): Promise<string> {
  const { signal } = currentTurn()
  note(`running ${name}`)
  const timer = setTimeout(() => note(`stopped ${name} False`), 30_000)
  await once(signal, 'abort')
  clearTimeout(timer)
  note(`stopped ${name} True`)
  return 'stopped'
}

try {
  currentTurn()
} catch (error) {
  console.error(`outside a turn: ${(error as Error).message}`)
}

const deleteOrder = tool({
  description: 'Delete an order.',
  inputSchema: z.object({ order_id: z.string() }),
  execute: ({ order_id }) => {
    note(`delete_order ${order_id}`)
    return `deleted ${order_id}`
  },
})

const pay = tool({
  description: 'Pay an amount.',
  inputSchema: z.object({ amount: z.number(), memo: z.string().default('') }),
  execute: ({ amount, memo }) => {
    note(`pay ${JSON.stringify([amount, memo])}`)
    return 'paid'
  },
})

const readOrder = tool({
  description: 'Read an order.',
  inputSchema: z.object({ order_id: z.string() }),
  execute: ({ order_id }) => {
    note(`read_order ${order_id}`)
    return `order ${order_id}`
  },
})

const work = tool({
  description: 'Work on an order for a moment.',
  inputSchema: z.object({ order_id: z.string() }),
  execute: async ({ order_id }) => {
    note(`begin ${order_id}`)
    await sleep(100)
    note(`end ${order_id}`)
    return `worked on ${order_id}`
  },
})

const readPages = tool({
  description: 'Read pages.',
  inputSchema: z.object({ count: z.number() }),
  execute: ({ count }) => 'x'.repeat(count),
})

const ordersOfUser = tool({
  description: 'Return the orders of the user.',
  inputSchema: z.object({ place: z.string() }),
  execute: ({ place }) => myOrders(place),
})

const ordersAtOnce = tool({
  description: 'Return the orders of the user, without waiting.',
  inputSchema: z.object({ place: z.string() }),
  execute: () => `orders of ${caller()}`,
})

const waits = tool({
  description: 'Wait until the turn ends.',
  inputSchema: z.object({ name: z.string() }),
  execute: ({ name }) => waitForTheEnd(name),
})

const summarize = tool({
  description: 'Summarize a text.',
  inputSchema: z.object({ text: z.string() }),
  execute: async ({ text }) => {
    const model = buildModel(readSettings()[0])
    const abortSignal = currentTurn().signal
    return streamText({ model, prompt: text, abortSignal, onError: () => {} }).text
  },
})

const photo = tool({
  description: 'Take a photo.',
  inputSchema: z.object({}),
  execute: () => Buffer.from('GIF89a\xff\x00', 'latin1').toString('base64'),
  toModelOutput: ({ output: data }) => ({
    type: 'content',
    value: [
      { type: 'file', mediaType: 'image/gif', data: { type: 'data', data } },
      { type: 'text', text: 'a photo' },
    ],
  }),
})

const report = tool({
  description: 'Write a report of so many characters.',
  inputSchema: z.object({ size: z.number(), character: z.string().optional() }),
  execute: ({ size, character = '~' }) => character.repeat(size),
})

const refund = tool({
  description: 'Refund an order, which ends the turn.',
  inputSchema: z.object({ order_id: z.string() }),
  execute: ({ order_id }) => {
    note(`refund ${order_id}`)
    return `refunded ${order_id}`
  },
})

const closeOrder = tool({
  description: 'Close an order, which ends the turn.',
  inputSchema: z.object({ order_id: z.string() }),
  execute: ({ order_id }) => {
    note(`close_order ${order_id}`)
    return `closed ${order_id}`
  },
})

export const FINAL_TOOLS = ['refund', 'close_order']
const ALL = {
  photo,
  refund,
  close_order: closeOrder,
  report,
  delete_order: deleteOrder,
  pay,
  read_order: readOrder,
  work,
  read_pages: readPages,
  my_orders: ordersOfUser,
  my_orders_at_once: ordersAtOnce,
  wait_for_the_end: waits,
  summarize,
}
export const TOOLS = Object.fromEntries(Object.entries(ALL).filter(([name]) => name !== WITHOUT))
const gates = Object.keys(ALL).map((name) => {
  return [name, () => (asks(name) ? 'user-approval' : 'not-applicable')]
})
export const TOOL_APPROVAL = Object.fromEntries(gates)
