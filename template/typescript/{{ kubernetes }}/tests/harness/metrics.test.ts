// An autoscaler reads the number of running and waiting turns.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Metrics } from '../../src/harness/metrics/capability.ts'
import { Client, until } from './client.ts'
import { wait } from './script.ts'

test('metrics need no token and count running turns', async () => {
  const work = Promise.withResolvers<void>()
  const settings = { apiToken: 'sesame' }
  const client = new Client([wait(work.promise)], settings, (all, load) => {
    return [new Metrics(all, [], load)]
  })
  const running = client.post({ prompt: 'Hello.' }, { Authorization: 'Bearer sesame' })
  await until(() => client.model.requests.length === 1)
  const busy = await client.get('/metrics')
  assert.equal(busy.status, 200)
  assert.match(busy.text, /^agent_turns 1$/m)
  work.resolve()
  await running
  const idle = await client.get('/metrics')
  assert.match(idle.text, /^agent_turns 0$/m)
})
