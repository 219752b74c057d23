// Tool calls wait for a person, and the turn goes on with the answers.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Approval } from '../src/approval/capability.ts'
import { Capability, type Options } from '../src/capability.ts'
import type { Turn } from '../src/contract.ts'
import { Client, JSON_ONLY, POST, SESSION } from './client.ts'
import { GATE } from './gate.ts'
import type { Step } from './scripted_model.ts'

class Gate extends Capability {
  override prepare(_turn: Turn, options: Options): void {
    Object.assign(options, GATE)
  }
}

function clientOf(...script: Step[]): Client {
  return new Client(script, {}, (settings) => [new Approval(settings, []), new Gate(settings, [])])
}

async function ask(client: Client, body: object): Promise<any> {
  const sent = Buffer.from(JSON.stringify(body))
  const [, , text] = await client.send(POST, { ...JSON_ONLY, [SESSION]: 's' }, sent)
  return JSON.parse(text)
}

test('an approved call runs once, and the turn is committed', async () => {
  const client = clientOf(['Well. ', ['call']], ['Done.'])
  const { turn, waiting } = await ask(client, { prompt: '1' })
  const [{ id, tool }] = waiting
  assert.deepEqual([turn, tool], [1, 'word_count'])
  const { error } = await ask(client, { approve: ['other'] })
  assert.equal(error.type, 'not_waiting')
  assert.ok(error.message.includes(id))
  const committed = await ask(client, { approve: [id] })
  assert.deepEqual([committed.turn, committed.reply], [1, 'Well. Done.'])
  assert.equal((await ask(client, { approve: [id] })).error.type, 'not_waiting')
  assert.deepEqual(client.model.calls, ['1', '1 Well.  (toolUse) (toolResult)'])
})

test('a call is denied, and a new prompt drops what waits', async () => {
  const client = clientOf([['call']], ['No.'], [['call']])
  const [{ id }] = (await ask(client, { prompt: '1' })).waiting
  const denied = await ask(client, { deny: [{ id, reason: 'Not today.' }] })
  assert.equal(denied.reply, 'No.')
  assert.match(JSON.stringify((await client.runtime.sessions.read('s', null)).data), /Not today\./)
  assert.ok('waiting' in (await ask(client, { prompt: '2' })))
  assert.equal((await ask(client, { prompt: '3' })).dropped, true)
  assert.equal(client.model.calls.at(-1), '1 (toolUse) (toolResult) No. 3')
})
