// A turn with a store: kept beyond a restart, never merged, and never lost in silence.

import assert from 'node:assert/strict'
import { describe, type Mock, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { type Kept, replica, withEndpoint } from './replicas.ts'

// What happens to a snapshot that is stored.
const DAMAGES: Record<string, (kept: Kept) => string> = {
  'is truncated': (kept) => JSON.stringify(kept).slice(0, 99),
  'has another version': (kept) => JSON.stringify({ ...kept, schema_version: '2.0' }),
  'has no messages': (kept) => JSON.stringify({ ...kept, data: { messages: [] } }),
  'has no turn': (kept) => JSON.stringify({ ...kept, app_data: { ...kept.app_data, turn: 0 } }),
  'is too large': (kept) => JSON.stringify({ ...kept, more: 'x'.repeat(9000) }),
}
// What the endpoint does: nothing before its connection breaks, or nothing after, or all late.
const FAILURES = {
  'does not do it': [true, false, 0],
  'loses its answer': [false, true, 0],
  'is slow': [false, false, 1200],
} as const

test('a session goes on after a restart and on another replica', () =>
  withEndpoint(async (endpoint) => {
    const [one, two] = [replica(endpoint), replica(endpoint)]
    let turn = 0
    for (const it of [one, two, one, one]) assert.equal(await it.say('s', `${turn}`), `${++turn}`)
    const restarted = replica(endpoint)
    assert.equal(await restarted.say('s', '4'), '5')
    assert.deepEqual(restarted.model.calls, ['0 ok 1 ok 2 ok 3 ok 4'])
    assert.equal(await two.say('s!'), 'end')
    assert.deepEqual([await one.say('s'), await two.say('s')], ['1', '2'])
    assert.deepEqual(two.copies, ['put', 'end', 'put'])
  }))

test('a client that leaves during the save comes too late', () =>
  withEndpoint(async (endpoint) => {
    const client = replica(endpoint)
    const gone = Promise.withResolvers<void>()
    const save = client.store.save.bind(client.store)
    client.store.save = async (...values) => {
      await gone.promise
      return await save(...values)
    }
    assert.equal(await client.say('s', 'hi', 0.5), 'gone')
    gone.resolve()
    await client.turns.drain(1)
    assert.equal(await replica(endpoint).say('s'), '2')
  }))

describe('with a store', { concurrency: 4 }, () => {
  for (const [address, outcome, next, told] of [
    ['s', '2', '3', 'hi a x ok y'],
    ['s!', 'end', '1', 'y'],
  ] as const) {
    test(`a turn is refused when meanwhile another replica had ${address}`, () =>
      withEndpoint(async (endpoint) => {
        const [slow, fast] = [replica(endpoint, [['a'], [0.3, 'b']]), replica(endpoint)]
        assert.equal(await slow.say('s'), '1')
        const late = slow.say('s', '2')
        await sleep(100)
        assert.equal(await fast.say(address, 'x'), outcome)
        assert.equal(await late, 'session_conflict')
        assert.equal(await slow.say('s', 'y'), next)
        assert.equal(slow.model.calls.at(-1), told)
      }))
  }

  for (const [name, change] of Object.entries(DAMAGES)) {
    test(`is set aside what ${name}`, () =>
      withEndpoint(async (endpoint) => {
        const [one, two] = [replica(endpoint), replica(endpoint)]
        assert.equal(await one.say('s'), '1')
        endpoint.damage(change)
        assert.deepEqual([await two.say('s'), two.model.calls], ['session_corrupt', []])
        const [where] = await one.store.asides('s')
        const said = `session s: what was stored cannot be read; it is now ${where}`
        const log = console.error as unknown as Mock<typeof console.error>
        assert.ok(log.mock.calls.some(({ arguments: [line] }) => line.includes(said)))
        assert.deepEqual([await one.say('s'), await two.say('s')], ['1', '2'])
      }))
  }

  for (const [name, failure] of Object.entries(FAILURES)) {
    test(`a turn is whole or absent when the store ${name}`, () =>
      withEndpoint(async (endpoint) => {
        const timeout = failure[2] ? 1000 : 5000
        const client = replica(endpoint, [['a'], [0.2, 'b']], { timeout })
        assert.equal(await client.say('s'), '1')
        endpoint.fail = failure // at load: then the model is not asked
        assert.deepEqual([await client.say('s'), client.model.calls], ['store_unavailable', ['hi']])
        endpoint.fail = null
        const turn = client.say('s#k', '2')
        await sleep(100)
        endpoint.fail = failure // at save
        assert.equal(await turn, 'store_unavailable')
        await sleep(failure[2])
        endpoint.fail = null
        assert.deepEqual([await client.say('s#k', '2'), await client.say('s', '3')], ['2', '3'])
        assert.match(client.model.calls.at(-1) ?? '', /^hi a 2 (b|ok) 3$/)
      }))
  }

  test('a session that is too large stays as it was', () =>
    withEndpoint(async (endpoint) => {
      const client = replica(endpoint, [['a'], ['x'.repeat(9000)]])
      const turns = [await client.say('s'), await client.say('s'), await client.say('s')]
      assert.deepEqual(turns, ['1', 'session_too_large', '2'])
    }))

  test('sessions only begin in a store that is read-only', () =>
    withEndpoint(async (endpoint) => {
      assert.equal(await replica(endpoint).say('s'), '1')
      const client = replica(endpoint, [], { isWritable: false })
      const said: unknown[] = []
      for (const it of ['s', 's', 's!', 's', 'new!', 'new']) said.push(await client.say(it))
      assert.deepEqual(said, ['2', '3', 'end', '1', 'end', '1'])
      assert.deepEqual(client.copies, ['put', 'put', 'end', 'put', 'put'])
      assert.equal(await replica(endpoint).say('s'), '2')
    }))
})
