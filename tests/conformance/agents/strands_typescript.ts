// The agent of this suite: tools that note their runs and know their turn.

import { once } from 'node:events'
import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { Agent, type BeforeToolCallEvent, ImageBlock } from '@strands-agents/sdk'
import { TextBlock, tool } from '@strands-agents/sdk'
import { HumanInTheLoop } from '@strands-agents/sdk/vended-interventions/hitl'
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
  name: 'delete_order',
  description: 'Delete an order.',
  inputSchema: z.object({ order_id: z.string() }),
  callback: ({ order_id }) => {
    note(`delete_order ${order_id}`)
    return `deleted ${order_id}`
  },
})

const pay = tool({
  name: 'pay',
  description: 'Pay an amount.',
  inputSchema: z.object({ amount: z.number(), memo: z.string().default('') }),
  callback: ({ amount, memo }) => {
    note(`pay ${JSON.stringify([amount, memo])}`)
    return 'paid'
  },
})

const readOrder = tool({
  name: 'read_order',
  description: 'Read an order.',
  inputSchema: z.object({ order_id: z.string() }),
  callback: ({ order_id }) => {
    note(`read_order ${order_id}`)
    return `order ${order_id}`
  },
})

const work = tool({
  name: 'work',
  description: 'Work on an order for a moment.',
  inputSchema: z.object({ order_id: z.string() }),
  callback: async ({ order_id }) => {
    note(`begin ${order_id}`)
    await sleep(100)
    note(`end ${order_id}`)
    return `worked on ${order_id}`
  },
})

const readPages = tool({
  name: 'read_pages',
  description: 'Read pages.',
  inputSchema: z.object({ count: z.number() }),
  callback: ({ count }) => 'x'.repeat(count),
})

const ordersOfUser = tool({
  name: 'my_orders',
  description: 'Return the orders of the user.',
  inputSchema: z.object({ place: z.string() }),
  callback: ({ place }) => myOrders(place),
})

const ordersAtOnce = tool({
  name: 'my_orders_at_once',
  description: 'Return the orders of the user, without waiting.',
  inputSchema: z.object({ place: z.string() }),
  callback: () => `orders of ${caller()}`,
})

const waits = tool({
  name: 'wait_for_the_end',
  description: 'Wait until the turn ends.',
  inputSchema: z.object({ name: z.string() }),
  callback: ({ name }) => waitForTheEnd(name),
})

const summarize = tool({
  name: 'summarize',
  description: 'Summarize a text.',
  inputSchema: z.object({ text: z.string() }),
  callback: async ({ text }) => {
    const agent = new Agent({ model: buildModel(readSettings()[0]), printer: false })
    return String(await agent.invoke(text, { cancelSignal: currentTurn().signal }))
  },
})

const remember = tool({
  name: 'remember',
  description: 'Remember a text beside the messages.',
  inputSchema: z.object({ text: z.string() }),
  callback: ({ text }, context) => {
    const notes = [...((context?.agent.appState.get('notes') as string[] | undefined) ?? []), text]
    context?.agent.appState.set('notes', notes)
    return notes.join(', ')
  },
})

const photo = tool({
  name: 'photo',
  description: 'Take a photo.',
  inputSchema: z.object({}),
  callback: () => {
    const bytes = Buffer.from('GIF89a\xff\x00', 'latin1')
    return [new ImageBlock({ format: 'gif', source: { bytes } }), new TextBlock('a photo')]
  },
})

const report = tool({
  name: 'report',
  description: 'Write a report of so many characters.',
  inputSchema: z.object({ size: z.number(), character: z.string().optional() }),
  callback: ({ size, character = '~' }) => character.repeat(size),
})

const refund = tool({
  name: 'refund',
  description: 'Refund an order, which ends the turn.',
  inputSchema: z.object({ order_id: z.string() }),
  callback: ({ order_id }) => {
    note(`refund ${order_id}`)
    return `refunded ${order_id}`
  },
})

const closeOrder = tool({
  name: 'close_order',
  description: 'Close an order, which ends the turn.',
  inputSchema: z.object({ order_id: z.string() }),
  callback: ({ order_id }) => {
    note(`close_order ${order_id}`)
    return `closed ${order_id}`
  },
})

export const FINAL_TOOLS = ['refund', 'close_order']
const ALL = [
  photo,
  refund,
  closeOrder,
  report,
  deleteOrder,
  pay,
  readOrder,
  work,
  readPages,
  ordersOfUser,
  ordersAtOnce,
  waits,
  summarize,
  remember,
]
export const TOOLS = ALL.filter(({ name }) => name !== WITHOUT)

/** Asks for an approval if the tool asks in this turn. */
class Gate extends HumanInTheLoop {
  override async beforeToolCall(event: BeforeToolCallEvent) {
    return asks(event.toolUse.name) ? super.beforeToolCall(event) : { type: 'proceed' as const }
  }
}

export const INTERVENTIONS = [new Gate()]
