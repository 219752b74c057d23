// The model, the effort and the tools of a request.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Client } from './client.ts'
import { provider } from './fakes.ts'

const SETTINGS = { model: 'gpt-5', researchModels: ['gpt-5-mini'] }

test('a request chooses a model and an effort', async () => {
  const { url, requests } = await provider()
  process.env.OPENAI_BASE_URL = url
  const client = new Client([], SETTINGS)
  const headers = { 'X-Research-Model': 'gpt-5-mini', 'X-Research-Effort': 'high' }
  assert.equal((await client.post({ prompt: 'Hello' }, headers)).reply, 'ok')
  assert.equal(requests[0]?.model, 'gpt-5-mini')
  assert.equal(requests[0]?.reasoning_effort, 'high')
})

test('a model or an effort that is not listed is refused', async () => {
  const client = new Client([], SETTINGS)
  for (const [name, value] of [
    ['X-Research-Model', 'gpt-99'],
    ['X-Research-Effort', 'endless'],
  ]) {
    const { status, error } = await client.post({ prompt: 'Hello' }, { [name!]: value! })
    assert.equal(status, 400)
    assert.equal(error, 'invalid_request')
  }
  assert.deepEqual(client.model.requests, [])
})

test('the last step has no tools, so that it answers', async () => {
  const { url, requests } = await provider()
  process.env.OPENAI_BASE_URL = url
  const client = new Client([], { ...SETTINGS, maxSteps: 1 })
  await client.post({ prompt: 'Hello' }, { 'X-Research-Model': 'gpt-5-mini' })
  assert.equal(requests[0]?.tool_choice, 'none')
})
