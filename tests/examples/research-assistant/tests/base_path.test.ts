// The path in front of all others.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { openClient } from './client.ts'

test('requests with the base path reach the agent, and so do health checks without it', async (context) => {
  const client = await openClient(context, [], { basePath: '/research' })
  assert.equal(
    (await client.request('POST', '/research/invocations', {}, '{"prompt": "Hi"}')).reply,
    'ok',
  )
  assert.equal((await client.get('/ping')).status, 200)
  assert.equal((await client.get('/researchers')).status, 404)
})
