// A turn is a transaction: it is committed whole, or it leaves no trace.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { AgentError } from '../src/contract.ts'
import { Client, JSON_ONLY, POST, SESSION } from './client.ts'
import type { Step } from './scripted_model.ts'

const CALL: Step = ['counting', ['call']]
const OWN = new Error('b', { cause: new AgentError('session_forbidden') })
const FAILURES: Record<string, [Step, string]> = {
  fails: [['half', new Error('secret')], 'model_failed'],
  'fails with an error of yours': [[new Error('a', { cause: OWN })], 'session_forbidden'],
  'is cut': [['half', ['cut']], 'model_failed'],
  'says only white space': [[' \n\u0085\u2003\ufeff'], 'empty_reply'],
  'is cut by its length': [['half', ['length']], 'reply_incomplete'],
  'is filtered': [['half', ['filter']], 'reply_incomplete'],
  'calls tools for ever': [CALL, 'reply_incomplete'],
  'takes too long': [['half', 3], 'turn_timeout'],
}
// session@actor#key=outcome, a turn's number or an error; ! ends the session, ~ waits first.
const CONVERSATIONS = {
  'the least recently used session is forgotten': 'a=1 b=1 a=2 c=1 a=3 b=1',
  'an idle session is forgotten': 's#k=1 ~s#k=1 ~s=2 ~~s=1',
  'a caller without a session gets a new one': '=1 =1 #k=invalid_request !=invalid_request',
  'an actor and a key have to be valid': 's@é#é=invalid_actor s#é=invalid_request',
  'the first actor owns a session': 's@a=1 s@b=session_forbidden s=session_forbidden s@a=2',
  'nobody is an actor too': 's=1 s@a=session_forbidden s@a!=session_forbidden s!=end s@a=1 t!=end',
  'the key of a turn repeats it': 's=1 s=2 s#k=3 s#k=3 s#l=4 s#k=3 s=5 s#l=4',
}

describe('in a conversation', { concurrency: true }, () => {
  for (const [name, conversation] of Object.entries(CONVERSATIONS)) {
    test(name, async () => {
      const sessionIdleSeconds = conversation.includes('~') ? 2 : 60
      const client = new Client([], { sessionCapacity: 2, sessionIdleSeconds })
      for (const turn of conversation.split(' ')) {
        const [address = '', outcome] = turn.split('=')
        assert.equal(await client.say(address), outcome, turn)
      }
    })
  }
})

describe('no trace is left when the model', { concurrency: true }, () => {
  for (const [name, [step, error]] of Object.entries(FAILURES)) {
    test(name, async () => {
      const limits = { maxSteps: 3, turnTimeoutSeconds: error === 'turn_timeout' ? 1 : 60 }
      const client = new Client([CALL, step, step, step], limits)
      assert.equal(await client.say('s#k', '1'), error)
      client.model.script = []
      assert.deepEqual([await client.say('s@a#k', '2'), await client.say('s@a', '3')], ['1', '2'])
      assert.equal(client.model.calls.at(-1), '2 ok 3')
    })
  }
})

test('turns of a session run one by one, and a full queue refuses', async () => {
  const limits = { sessionQueue: 2, turnTimeoutSeconds: 2 }
  const client = new Client([['half', 3], ['ok'], [1.2, 'ok']], limits)
  const turns: Promise<string>[] = []
  const start = async (address: string, prompt: string, seconds = 60) => {
    const { tasks } = client.runtime.turns
    const before = tasks.size
    turns.push(client.say(address, prompt, AbortSignal.timeout(seconds * 1000)))
    // So that they arrive in this order.
    for (let tries = 0; tasks.size === before && tries < 200; tries++) await sleep(5)
  }
  await start('s', '1', 1)
  await start('s', '2')
  await start('s', '3', 0.6)
  turns.push(Promise.resolve(await client.say('s', '4')))
  await start('t', 'hi')
  while (client.model.calls.length < 3) await sleep(5)
  await start('s', '5')
  await start('s', '6')
  assert.equal((await Promise.all(turns)).join(' '), 'gone 1 gone session_busy 1 2 3')
  assert.deepEqual(client.model.calls, ['1', 'hi', '2', '2 ok 5', '2 ok 5 ok 6'])
  const { sessions, turns: running } = client.runtime
  assert.deepEqual([running.tasks.size, sessions.queues.size], [0, 0])
})

test('history is cut by half in front of a prompt, and a long turn is kept whole', async () => {
  const calls: Step[] = [[['call']], [['call']], [['call']], [['call']]]
  const script = [...[...'abcde'].map((text): Step => [text]), ...calls]
  const client = new Client(script, { historyMessages: 8 })
  for (const prompt of '1234567') await client.say('s', prompt)
  assert.deepEqual(client.model.calls.slice(4, 6), ['1 a 2 b 3 c 4 d 5', '4 d 5 e 6'])
  assert.equal(client.model.calls[10], `6${' (toolUse) (toolResult)'.repeat(4)} ok 7`)
  const { signal } = new AbortController()
  const { sessions } = client.runtime
  const stored = await sessions.open('s', null, signal, async ({ snapshot }) => snapshot)
  assert.doesNotMatch(JSON.stringify(stored), /system/)
})

test('a turn is replaced with all after it, and a fork is a new session', async () => {
  const client = new Client([['a'], ['b'], ['c'], ['d']])
  for (const prompt of '123') await client.say('s', prompt)
  for (const body of ['{"replace_turn": 2, "prompt": "4"}', '{"fork": "t", "at_turn": 1}']) {
    const [status] = await client.send(POST, { ...JSON_ONLY, [SESSION]: 's' }, Buffer.from(body))
    assert.equal(status, 200)
  }
  assert.deepEqual([await client.say('s', '5'), await client.say('t', '6')], ['3', '2'])
  assert.deepEqual(client.model.calls.slice(3), ['1 a 4', '1 a 4 d 5', '1 a 6'])
})
