// The model, the effort and the tools of a request.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { ACTOR, openClient } from './client.ts'
import { provider } from './fakes.ts'

const SETTINGS = { model: 'gpt-5', researchModels: ['gpt-5-mini'], apiToken: 'token' }
const ADA = { [ACTOR]: 'ada', 'X-API-Token': 'token' }
const MINI = { ...ADA, 'X-Research-Model': 'gpt-5-mini' }

test('a request chooses a model and an effort, within the limits of its customer', async (context) => {
  const { url, requests } = await provider()
  process.env.OPENAI_BASE_URL = url
  const client = await openClient(context, [], { ...SETTINGS, actorTokensPerDay: 1 })
  const chosen = { ...MINI, 'X-Research-Effort': 'high' }
  assert.equal((await client.post({ prompt: 'Hello' }, chosen)).reply, 'ok')
  assert.equal(requests[0]?.model, 'gpt-5-mini')
  assert.equal(requests[0]?.reasoning_effort, 'high')
  assert.equal((await client.post({ prompt: 'Hello' }, chosen)).error, 'rate_limited')
})

test('a model or an effort that is not listed is refused', async (context) => {
  const client = await openClient(context, [], SETTINGS)
  for (const chosen of [{ 'X-Research-Model': 'gpt-99' }, { 'X-Research-Effort': 'endless' }]) {
    const { error } = await client.post({ prompt: 'Hello' }, { ...ADA, ...chosen })
    assert.equal(error, 'invalid_request')
  }
  assert.deepEqual(client.model.requests, [])
})

test('the last step has no tools, so that it answers', async (context) => {
  const { url, requests } = await provider()
  process.env.OPENAI_BASE_URL = url
  const client = await openClient(context, [], { ...SETTINGS, maxSteps: 1 })
  await client.post({ prompt: 'Hello' }, MINI)
  assert.equal(requests[0]?.tool_choice, 'none')
})
