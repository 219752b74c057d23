// The webhook that is answered later.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { ACTOR, type Client, fail, openClient, reply, wait } from './client.ts'
import { receiver } from './fakes.ts'

const ADA = { [ACTOR]: 'ada' }

function ask(client: Client, body: object) {
  return client.request('POST', '/questions', ADA, JSON.stringify(body))
}

test('a question is accepted at once, and its answer is sent later', async (context) => {
  const { url: answersUrl, answer } = await receiver()
  const { promise: isAnswered, resolve } = Promise.withResolvers<void>()
  const client = await openClient(context, [[wait(isAnswered), reply('42')]], { answersUrl })
  const { status, body } = await ask(client, { id: 'q1', question: 'How many?' })
  assert.equal(status, 202)
  assert.deepEqual(body, { id: 'q1' })
  resolve()
  assert.deepEqual(await answer, { id: 'q1', reply: '42' })
})

test('the answer to a failed turn is its error', async (context) => {
  const { url: answersUrl, answer } = await receiver()
  const client = await openClient(context, [fail(new Error('overloaded'))], { answersUrl })
  await ask(client, { id: 'q1', question: 'How many?' })
  assert.deepEqual(await answer, { id: 'q1', error: 'model_failed' })
})

test('a body that is no question is refused', async (context) => {
  const client = await openClient(context, [], { answersUrl: 'http://127.0.0.1:9' })
  assert.equal((await ask(client, { id: 'q1' })).error, 'invalid_request')
})
