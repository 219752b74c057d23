// The owner's stores: searched in time, and told only of committed turns, once.

import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import type { MemoryStore } from '@strands-agents/sdk'

import { GuardedStore } from '../src/memory/adapter.ts'
import { Recorder } from '../src/memory/record.ts'
import { OfflineModel } from '../src/offline_model.ts'

const logged = mock.method(console, 'error', () => {})
const MESSAGES = [{ role: 'user', content: [{ text: 'Hello!' }] }] as const

test('a store of the owner is searched in time', async () => {
  const hang = async () => await sleep(9000, [], { ref: false })
  const store = new GuardedStore({ name: 'slow', writable: false, search: hang }, 0.1)
  assert.deepEqual(await store.search('tea'), [])
  const line = String(logged.mock.calls.at(-1)?.arguments)
  assert.match(line, /nothing recalled from store slow: no answer within 0\.1 s/)
})

test('a store of the owner gets a turn until it succeeds, and only once', async () => {
  const told: unknown[] = []
  let isDown = true
  const addMessages: MemoryStore['addMessages'] = async (messages) => {
    if (isDown) throw new TypeError('down')
    told.push(messages)
  }
  const own = { name: 'own', writable: true, search: async () => [], addMessages }
  const store = new GuardedStore(own, 1)
  assert.ok(!store.writable, 'the SDK itself does not write to it')
  const recorder = new Recorder([])
  const work = store.recording([...MESSAGES] as never, new OfflineModel())
  recorder.put('store own', { actor: 'ada', sessionId: 's', projectId: null }, work, 1)
  await sleep(20)
  isDown = false
  await recorder.close(5)
  assert.deepEqual(told, [MESSAGES])
  const attempt = store.recording([...MESSAGES] as never, new OfflineModel())
  await Promise.all([attempt(), attempt()])
  assert.equal(told.length, 2, 'work that is late is not repeated')
})
