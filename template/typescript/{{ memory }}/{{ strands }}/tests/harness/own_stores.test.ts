// Your own stores: searches have a time limit, and only committed turns are written.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { MemoryStore, MessageData } from '@strands-agents/sdk'

import { GuardedStore } from '../../src/harness/memory/adapter.ts'
import { Recorder } from '../../src/harness/memory/record.ts'
import { OfflineModel } from '../../src/harness/echo_model.ts'
import { captureLog, until } from './client.ts'
import { Clock } from './clock.ts'

const MESSAGES: MessageData[] = [{ role: 'user', content: [{ text: 'Hello!' }] }]

test('a search of an own store has a time limit', async (context) => {
  const log = captureLog(context)
  const clock = new Clock(context)
  let searches = 0
  const search = () => {
    searches++
    return new Promise<never>(() => {})
  }
  const store = new GuardedStore({ name: 'slow', writable: false, search }, 1)
  const found = store.search('tea')
  await until(() => searches === 1)
  clock.advance(2)
  assert.deepEqual(await found, [])
  assert.match(log.join('\n'), /could not search store slow: no answer within 1 s/)
})

/** Stores messages in a list unless it is down. */
class OwnStore implements MemoryStore {
  readonly name = 'own'
  readonly writable = true
  readonly received: unknown[] = []
  isDown = false
  attempts = 0

  async search() {
    return []
  }

  async add(text: string): Promise<void> {
    this.received.push(text)
  }

  async addMessages(messages: MessageData[]): Promise<void> {
    this.attempts++
    if (this.isDown) throw new TypeError('down')
    this.received.push(messages)
  }
}

test('recording in an own store is retried until it succeeds', async () => {
  const own = new OwnStore()
  const store = new GuardedStore(own, 1)
  const recorder = new Recorder([])
  own.isDown = true
  const identity = { actor: 'ada', sessionId: 'first', projectId: null }
  const record = store.recording(MESSAGES, new OfflineModel(), async () => false)
  recorder.put('store own', identity, record, 1)
  await until(() => own.attempts === 1)
  own.isDown = false
  await recorder.close(20)
  assert.deepEqual(own.received, [MESSAGES])
})

test('a late own store does not get a turn twice, nor of an erased actor', async () => {
  for (const isErased of [false, true]) {
    const own = new OwnStore()
    const store = new GuardedStore(own, 1)
    const record = store.recording(MESSAGES, new OfflineModel(), async () => isErased)
    await Promise.all([record(), record()])
    assert.deepEqual(own.received, isErased ? [] : [MESSAGES])
  }
})

test('the SDK cannot write to an own store', () => {
  assert.equal(new GuardedStore(new OwnStore(), 1).writable, false)
})

test('a text for an own store waits for the commit', async () => {
  const own = new OwnStore()
  const remembered: unknown[] = []
  const store = new GuardedStore(own, 1, (text, { stores }) => remembered.push([text, stores]))
  await store.add('tea')
  assert.deepEqual(own.received, [])
  assert.deepEqual(remembered, [['tea', ['own']]])
  await store.send('tea', {})
  assert.deepEqual(own.received, ['tea'])
})
