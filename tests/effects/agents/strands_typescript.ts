// An agent whose tools call a service that counts the calls.

import { tool } from '@strands-agents/sdk'
import { HumanInTheLoop } from '@strands-agents/sdk/vended-interventions/hitl'
import { z } from 'zod'

import { afterCommit, type Effect, once } from './harness/effects/index.ts'

export const SYSTEM_PROMPT = 'You are a helpful assistant. Answer briefly and in plain words.'
const COUNTER = process.env.COUNTER ?? ''
const inputSchema = z.object({ name: z.string() })

/** Count a call at the service. */
async function send({ name }: { name: string }, { key, signal }: Effect): Promise<string> {
  const body = JSON.stringify({ key, name })
  const response = await fetch(`${COUNTER}/calls`, { method: 'POST', body, signal })
  return resultOf(response)
}

/** Return the result of a call that the service has counted. */
async function reconcile(key: string): Promise<string | null> {
  const response = await fetch(`${COUNTER}/calls/${key}`)
  return response.status === 404 ? null : resultOf(response)
}

async function resultOf(response: Response): Promise<string> {
  if (!response.ok) throw new Error(`HTTP ${response.status}`)
  const { result } = (await response.json()) as { result: string }
  return result
}

const notify = tool(
  afterCommit({
    name: 'notify',
    description: 'Send a notification.',
    inputSchema,
    callback: send,
  }),
)

const notifyIfApproved = tool(
  afterCommit({
    name: 'notify_if_approved',
    description: 'Send a notification that a person approves.',
    inputSchema,
    callback: send,
  }),
)

const pay = tool(
  once({
    name: 'pay',
    description: 'Pay, and find an earlier payment.',
    inputSchema,
    callback: send,
    reconcile,
  }),
)

const payBlindly = tool(
  once({
    name: 'pay_blindly',
    description: 'Pay, without a way to find an earlier payment.',
    inputSchema,
    callback: send,
  }),
)

const payIfApproved = tool(
  once({
    name: 'pay_if_approved',
    description: 'Pay if a person approves.',
    inputSchema,
    callback: send,
  }),
)

export const TOOLS = [notify, notifyIfApproved, pay, payBlindly, payIfApproved]
const allowedTools = ['*', '!notify_if_approved', '!pay_if_approved']
export const INTERVENTIONS = [new HumanInTheLoop({ allowedTools })]
