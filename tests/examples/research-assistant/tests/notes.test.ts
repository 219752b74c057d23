// The notes of customers.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { type Client, openClient, toolCall } from './client.ts'

/** Call a tool for a customer, and return what it told the model. */
async function call(client: Client, actor: string, name: string, input = {}): Promise<string> {
  client.model.script.push(toolCall(name, input))
  const { status } = await client.say('Go on.', { session: `of-${actor}`, actor })
  assert.equal(status, 200)
  return JSON.stringify(client.model.requests.at(-1)?.at(-1))
}

test('each customer has notes of their own', async (context) => {
  const client = await openClient(context)
  await call(client, 'ada', 'save_note', { note: 'Roof first.' })
  assert.match(await call(client, 'ada', 'read_notes'), /Roof first\./)
  assert.doesNotMatch(await call(client, 'bob', 'read_notes'), /Roof first\./)
})
