// The limits of each customer: settings, and no code.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { openClient } from './client.ts'

test('a customer beyond the limit is refused, and another one is not', async (context) => {
  const client = await openClient(context, [], { actorTurnsPerDay: 1 })
  assert.equal((await client.say('Hello', { session: 's', actor: 'ada' })).status, 200)
  assert.equal((await client.say('Hello', { session: 's', actor: 'ada' })).error, 'rate_limited')
  assert.equal((await client.say('Hello', { session: 't', actor: 'bob' })).status, 200)
})
