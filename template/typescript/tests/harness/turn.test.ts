// A turn is a transaction: it commits, or the session stays unchanged.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'

import { AgentError } from '../../src/harness/contract.ts'
import { Client, SESSION, until } from './client.ts'
import { Clock } from './clock.ts'
import { type Answer, fail, reply, type Step, stop, toolCall, wait } from './script.ts'

const CALL = toolCall('word_count', { text: 'a b' })

describe('a session', () => {
  test('the least recently used session is dropped', async () => {
    const client = new Client([], { sessionCapacity: 2 })
    await client.say('Hello.', { session: 'first' })
    await client.say('Hello.', { session: 'second' })
    const used = await client.say('Hello again.', { session: 'first' })
    assert.equal(used.turn, 2)
    await client.say('Hello.', { session: 'third' })
    const kept = await client.say('Am I known?', { session: 'first' })
    assert.equal(kept.turn, 3)
    const dropped = await client.say('Am I known?', { session: 'second' })
    assert.equal(dropped.turn, 1)
  })

  test('an idle session is dropped', async (context) => {
    const clock = new Clock(context)
    const client = new Client([], { sessionIdleSeconds: 10 })
    await client.say('Hello.', { session: 'ada' })
    clock.advance(11)
    const late = await client.say('Am I known?', { session: 'ada' })
    assert.equal(late.turn, 1)
  })

  test('a session that is only read stays', async (context) => {
    const clock = new Clock(context)
    const client = new Client([], { sessionIdleSeconds: 10 })
    await client.say('Hello.', { session: 'ada', key: 'retry' })
    clock.advance(6)
    const repeated = await client.say('Hello.', { session: 'ada', key: 'retry' })
    assert.equal(repeated.turn, 1)
    clock.advance(6)
    const next = await client.say('Am I known?', { session: 'ada' })
    assert.equal(next.turn, 2)
  })

  test('a request without a session creates a session', async () => {
    const client = new Client()
    const one = await client.say('Hello.')
    const other = await client.say('Hello.')
    assert.equal(one.turn, 1)
    assert.equal(other.turn, 1)
    assert.notEqual(one.session_id, other.session_id)
  })

  test('a key and an end need a session', async () => {
    const client = new Client()
    const keyed = await client.say('Hello.', { key: 'retry' })
    assert.equal(keyed.error, 'invalid_request')
    const ended = await client.end({})
    assert.equal(ended.error, 'invalid_request')
  })

  test('actor and key are validated', async () => {
    const client = new Client()
    const both = await client.say('Hello.', { session: 'ada', actor: 'Zoé', key: 'clé' })
    assert.equal(both.error, 'invalid_actor')
    const key = await client.say('Hello.', { session: 'ada', key: 'clé' })
    assert.equal(key.error, 'invalid_request')
  })

  test('the first actor owns a session', async () => {
    const client = new Client()
    await client.say('Hello.', { session: 'shared', actor: 'ada' })
    const other = await client.say('Hello.', { session: 'shared', actor: 'bob' })
    assert.equal(other.error, 'session_forbidden')
    const nobody = await client.say('Hello.', { session: 'shared' })
    assert.equal(nobody.error, 'session_forbidden')
    const owner = await client.say('Hello.', { session: 'shared', actor: 'ada' })
    assert.equal(owner.turn, 2)
  })

  test('callers without an actor own their sessions, until they end', async () => {
    const client = new Client()
    await client.say('Hello.', { session: 'shared' })
    const turn = await client.say('Hello.', { session: 'shared', actor: 'ada' })
    assert.equal(turn.error, 'session_forbidden')
    const end = await client.end({ session: 'shared', actor: 'ada' })
    assert.equal(end.error, 'session_forbidden')
    const ended = await client.end({ session: 'shared' })
    assert.equal(ended.ended, true)
    const next = await client.say('Hello.', { session: 'shared', actor: 'ada' })
    assert.equal(next.turn, 1)
  })

  test('an unknown session can be ended', async () => {
    const answer = await new Client().end({ session: 'unknown' })
    assert.equal(answer.ended, true)
  })

  test('a repeated key returns its turn', async () => {
    const client = new Client()
    await client.say('One.', { session: 'ada' })
    await client.say('Two.', { session: 'ada' })
    const third = await client.say('Three.', { session: 'ada', key: 'third' })
    assert.equal(third.turn, 3)
    const repeated = await client.say('Three.', { session: 'ada', key: 'third' })
    assert.equal(repeated.turn, 3)
    const fourth = await client.say('Four.', { session: 'ada', key: 'fourth' })
    assert.equal(fourth.turn, 4)
    const older = await client.say('Three.', { session: 'ada', key: 'third' })
    assert.equal(older.turn, 3)
    assert.equal(client.model.requests.length, 4)
  })

  test('a turn without a key is new', async () => {
    const client = new Client()
    await client.say('One.', { session: 'ada', key: 'first' })
    await client.say('Two.', { session: 'ada' })
    const third = await client.say('Three.', { session: 'ada' })
    assert.equal(third.turn, 3)
    const first = await client.say('One.', { session: 'ada', key: 'first' })
    assert.equal(first.turn, 1)
    const fourth = await client.say('Four.', { session: 'ada' })
    assert.equal(fourth.turn, 4)
  })

  test('a long history is cut to half, before a prompt', async () => {
    const script = [reply('a'), reply('b'), reply('c'), reply('d'), reply('e')]
    const client = new Client(script, { historyMessages: 8 })
    for (const prompt of ['1', '2', '3', '4', '5', '6']) {
      await client.say(prompt, { session: 'ada' })
    }
    const [fifth, sixth] = client.model.conversations.slice(-2)
    assert.deepEqual(fifth, ['1', 'a', '2', 'b', '3', 'c', '4', 'd', '5'])
    assert.deepEqual(sixth, ['4', 'd', '5', 'e', '6'])
  })

  test('a long turn is kept whole', async () => {
    const client = new Client([CALL, CALL, CALL, CALL], { historyMessages: 8 })
    await client.say('Count.', { session: 'ada' })
    await client.say('Thanks.', { session: 'ada' })
    const call = ['(toolUse)', '(toolResult)']
    const first = ['Count.', ...call, ...call, ...call, ...call, 'ok']
    assert.deepEqual(client.model.conversations.at(-1), [...first, 'Thanks.'])
  })

  test('a turn is replaced with all later turns', async () => {
    const client = new Client([reply('a'), reply('b'), reply('c'), reply('d')])
    for (const prompt of ['1', '2', '3']) await client.say(prompt, { session: 'ada' })
    const replaced = await client.post({ replace_turn: 2, prompt: '4' }, { [SESSION]: 'ada' })
    assert.equal(replaced.turn, 2)
    const next = await client.say('5', { session: 'ada' })
    assert.equal(next.turn, 3)
    assert.deepEqual(client.model.conversations.at(-1), ['1', 'a', '4', 'd', '5'])
  })

  test('a fork is a new session with the first turns', async () => {
    const client = new Client([reply('a'), reply('b')])
    for (const prompt of ['1', '2']) await client.say(prompt, { session: 'ada' })
    const forked = await client.post({ fork: 'copy', at_turn: 1 }, { [SESSION]: 'ada' })
    assert.equal(forked.status, 200)
    const next = await client.say('3', { session: 'copy' })
    assert.equal(next.turn, 2)
    assert.deepEqual(client.model.conversations.at(-1), ['1', 'a', '3'])
    const original = await client.say('4', { session: 'ada' })
    assert.equal(original.turn, 3)
  })
})

describe('a failed turn leaves the session unchanged', () => {
  /** Fail the first turn of a session, and assert that it changed nothing. */
  async function failsWith(error: string, script: readonly Answer[]): Promise<void> {
    const client = new Client(script, { maxSteps: 3 })
    const failed = await client.say('Fail.', { session: 'ada', key: 'retry' })
    assert.equal(failed.error, error)
    await leavesNothing(client)
  }

  /** Assert that the session has no owner, key and messages. */
  async function leavesNothing(client: Client): Promise<void> {
    client.model.script = []
    const owner = { session: 'ada', actor: 'ada' }
    const retried = await client.say('Retry.', { ...owner, key: 'retry' })
    assert.equal(retried.turn, 1)
    const next = await client.say('Next.', owner)
    assert.equal(next.turn, 2)
    assert.deepEqual(client.model.conversations.at(-1), ['Retry.', 'ok', 'Next.'])
  }

  const called: Step[] = [reply('counting'), CALL]

  test('when the model fails', async () => {
    await failsWith('model_failed', [called, [reply('half'), fail(new Error('secret'))]])
  })

  test('when your code throws', async () => {
    const own = new Error('of a hook', { cause: new AgentError('session_forbidden') })
    const error = new Error('of the framework', { cause: own })
    await failsWith('session_forbidden', [called, fail(error)])
  })

  test('when the stream is cut', async () => {
    await failsWith('model_failed', [called, [reply('half'), stop('cut')]])
  })

  test('when the reply is blank', async () => {
    await failsWith('empty_reply', [called, reply(' \n\u0085\u2003\ufeff')])
  })

  test('when the reply reaches the length limit', async () => {
    await failsWith('reply_incomplete', [called, [reply('half'), stop('length')]])
  })

  test('when the reply is filtered', async () => {
    await failsWith('reply_incomplete', [called, [reply('half'), stop('filter')]])
  })

  test('when the model makes too many tool calls', async () => {
    await failsWith('reply_incomplete', [called, called, called, called])
  })

  test('when it times out', async (context) => {
    const clock = new Clock(context)
    const client = new Client([called, [reply('half'), wait()]], { turnTimeoutSeconds: 30 })
    const turn = client.say('Wait.', { session: 'ada', key: 'retry' })
    await until(() => client.model.requests.length === 2)
    clock.advance(31)
    assert.equal((await turn).error, 'turn_timeout')
    await leavesNothing(client)
  })
})

describe('turns of a session', () => {
  test('turns of a session run in sequence, beside other sessions', async () => {
    const first = Promise.withResolvers<void>()
    const client = new Client([[wait(first.promise), reply('one')]])
    const { tasks } = client.runtime.turns
    const turns = [client.say('1', { session: 'ada' })]
    await until(() => client.model.requests.length === 1)
    for (const prompt of ['2', '3']) {
      turns.push(client.say(prompt, { session: 'ada' }))
      await until(() => tasks.size === turns.length) // fixes their order
    }
    const other = await client.say('Hello.', { session: 'bob' })
    assert.equal(other.turn, 1)
    assert.equal(client.model.requests.length, 2)
    first.resolve()
    const answers = await Promise.all(turns)
    const numbers = answers.map(({ turn }) => turn)
    assert.deepEqual(numbers, [1, 2, 3])
    const [, , second, third] = client.model.conversations
    assert.deepEqual(second, ['1', 'one', '2'])
    assert.deepEqual(third, ['1', 'one', '2', 'ok', '3'])
  })

  test('a full queue rejects a turn', async () => {
    const first = Promise.withResolvers<void>()
    const client = new Client([[wait(first.promise), reply('one')]], { sessionQueue: 2 })
    const { tasks } = client.runtime.turns
    const turns: Promise<unknown>[] = []
    for (const prompt of ['1', '2', '3']) {
      turns.push(client.say(prompt, { session: 'ada' }))
      await until(() => tasks.size === turns.length)
    }
    const refused = await client.say('4', { session: 'ada' })
    assert.equal(refused.error, 'session_busy')
    first.resolve()
    await Promise.all(turns)
    const next = await client.say('5', { session: 'ada' })
    assert.equal(next.turn, 4)
  })

  test('a disconnect cancels the turn', async () => {
    const client = new Client([[reply('half'), wait()]])
    const leave = new AbortController()
    const left = client.say('1', { session: 'ada', signal: leave.signal })
    await until(() => client.model.requests.length === 1)
    leave.abort()
    await assert.rejects(left, { name: 'AbortError' })
    const next = await client.say('2', { session: 'ada' })
    assert.equal(next.turn, 1)
    assert.deepEqual(client.model.conversations.at(-1), ['2'])
  })

  test('a disconnect frees a place in the queue', async () => {
    const first = Promise.withResolvers<void>()
    const client = new Client([[wait(first.promise), reply('one')]], { sessionQueue: 2 })
    const { queues } = client.runtime.sessions
    const { tasks } = client.runtime.turns
    const leave = new AbortController()
    const one = client.say('1', { session: 'ada' })
    await until(() => client.model.requests.length === 1)
    const left = client.say('2', { session: 'ada', signal: leave.signal })
    await until(() => tasks.size === 2)
    leave.abort()
    await assert.rejects(left, { name: 'AbortError' })
    await until(() => tasks.size === 1)
    // Two turns can wait again, behind the running turn.
    const three = client.say('3', { session: 'ada' })
    await until(() => tasks.size === 2)
    const four = client.say('4', { session: 'ada' })
    await until(() => tasks.size === 3)
    await client.say('Hello.', { session: 'bob' })
    assert.equal(client.model.requests.length, 2)
    first.resolve()
    const numbers = [(await one).turn, (await three).turn, (await four).turn]
    assert.deepEqual(numbers, [1, 2, 3])
    assert.deepEqual(client.model.conversations.at(-1), ['1', 'one', '3', 'ok', '4'])
    assert.equal(tasks.size, 0)
    assert.equal(queues.size, 0)
  })
})

test('the system prompt is not stored', async () => {
  const client = new Client()
  await client.say('Hello.', { session: 'ada' })
  const stored = await client.runtime.sessions.store.load('ada')
  assert.ok(stored)
  assert.doesNotMatch(JSON.stringify(stored), /system/)
})
