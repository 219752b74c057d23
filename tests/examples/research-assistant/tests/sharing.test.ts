// Share links, and the export of a customer's sessions.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { ACTOR, openClient, reply, SESSION } from './client.ts'

const SECRET = { shareSecret: 'a secret of this test' }
const ADA = { session: 's', actor: 'ada' }

test('a link shows a session to readers without a token', async (context) => {
  const client = await openClient(context, [reply('Roof first.')], { ...SECRET, apiToken: 'token' })
  const headers = { [SESSION]: 's', [ACTOR]: 'ada', 'X-API-Token': 'token' }
  await client.post({ prompt: 'What first?' }, headers)
  const { body } = await client.request('POST', '/share/s', headers)
  const { status, text } = await client.get(body.path)
  assert.equal(status, 200)
  assert.equal(text, '> What first?\n\nRoof first.\n')
  assert.equal((await client.get('/export')).status, 401)
})

test('only the customer of a session shares it, and no link can be made up', async (context) => {
  const client = await openClient(context, [reply('Roof first.')], SECRET)
  await client.say('What first?', ADA)
  const { error } = await client.request('POST', '/share/s', { [ACTOR]: 'bob' })
  assert.equal(error, 'session_forbidden')
  assert.equal((await client.get('/shared/ada')).status, 404)
})

test('an export has all sessions of a customer, forks included, and no other', async (context) => {
  const client = await openClient(context, [reply('one'), reply('two'), reply('three')])
  await client.say('1', ADA)
  await client.post({ fork: 'copy', at_turn: 1 }, { [SESSION]: 's', [ACTOR]: 'ada' })
  await client.say('2', { session: 'copy', actor: 'ada' })
  await client.say('3', { session: 'other', actor: 'bob' })
  const { body } = await client.get('/export', { [ACTOR]: 'ada' })
  const replies = Object.fromEntries(
    body.sessions.map(({ sessionId, turns }: { sessionId: string; turns: { reply: string }[] }) => {
      return [sessionId, turns.map((turn) => turn.reply)]
    }),
  )
  assert.deepEqual(replies, { s: ['one'], copy: ['one', 'two'] })
})
