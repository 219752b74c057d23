// An autoscaler sees how many turns there are.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Metrics } from '../src/metrics/capability.ts'
import { Client, JSON_ONLY } from './client.ts'

test('metrics need no token, and count turns', async () => {
  const client = new Client([], { apiToken: 'sesame' }, (settings) => [new Metrics(settings, [])])
  const [status, , text] = await client.send('GET /metrics', JSON_ONLY)
  assert.deepEqual([status, text.trimEnd().split('\n').at(-1)], [200, 'agent_turns 0'])
})
