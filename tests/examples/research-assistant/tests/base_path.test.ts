// The path in front of all others.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Client } from './client.ts'

test('requests with the base path reach the agent, and so do health checks without it', async () => {
  const client = new Client([], { basePath: '/research' })
  assert.equal(
    (await client.request('POST', '/research/invocations', {}, '{"prompt": "Hi"}')).reply,
    'ok',
  )
  assert.equal((await client.get('/ping')).status, 200)
  assert.equal((await client.get('/researchers')).status, 404)
})
