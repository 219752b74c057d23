// Tool calls wait for a person, and the turn goes on with the answers.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Approval } from '../src/approval/capability.ts'
import type { Answers } from '../src/approval/session.ts'
import { Capability, type Options } from '../src/capability.ts'
import { Turn } from '../src/contract.ts'
import type { LastTurn } from '../src/sessions.ts'
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

test('an answer is alone in its request, and what it is about stays', async () => {
  const client = clientOf([['call']], ['Done.'])
  const [{ id }] = (await ask(client, { prompt: '1' })).waiting
  const fork = { fork: 't', at_turn: 1 }
  for (const other of [{ end_session: true }, fork, { at_turn: 1 }, { prompt: '2' }]) {
    const refused = await ask(client, { approve: [id], ...other })
    assert.equal(refused.error.type, 'invalid_request')
  }
  assert.equal((await ask(client, { approve: [id] })).reply, 'Done.')
})

test('a question hides nothing of a call', async () => {
  for (const text of ['a', 'a\u202eb', 'a\n\u0007\u200bb', 'a '.repeat(200)]) {
    const input = { n: 1.5, text }
    const last = { waiting: [{ id: '1', tool: 'pay\u202e\n', input }] } as unknown as LastTurn
    const questions: string[] = []
    const read = async (question: string) => {
      questions.push(question)
      return 'y'
    }
    const turn = new Turn({ sessionId: 's', actor: null, key: null, prompt: '' })
    const approval = clientOf().runtime.capabilities[0]!
    const answers = await approval.ask!(last, turn, read)
    assert.deepEqual((answers as Answers).reasons, new Map([['1', null]]))
    const [first = '', second = first] = questions.join().split('\n')
    const [shown = ''] = first.replace('Run pay\\u202e\\u000a ', '').split('? [y')
    assert.deepEqual(JSON.parse(shown), input)
    assert.doesNotMatch(first + second, /[\p{C}\p{Zl}\p{Zp}]/u)
    assert.match(second, /^Run pay.*\? \[y\/N\/reason\] $/)
  }
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
