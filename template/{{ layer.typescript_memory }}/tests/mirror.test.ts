// Copies for a further collection, and what is set aside: the newest snapshot always stays.

import assert from 'node:assert/strict'
import { syncBuiltinESMExports } from 'node:module'
import { mock, test } from 'node:test'
import timers, { setImmediate } from 'node:timers/promises'

import { Unavailable } from '../src/memory/backends.ts'
import { CustomStore } from '../src/memory/custom_store.ts'
import { Mirror } from '../src/memory/mirror.ts'
import { Operations } from '../src/memory/operations.ts'
import { Secrets } from '../src/memory/secrets.ts'
import { Cached } from '../src/memory/stored.ts'
import { createSettings } from '../src/settings.ts'
import { declare, ID, OPTIONS, serving, SNAPSHOT } from './endpoints.ts'
import { createEndpoint } from './reference_endpoint.ts'

const [pauses, logged]: [number[], string[]] = [[], []]
mock.method(timers, 'setTimeout', async (time: number) => void pauses.push(time / 1000))
syncBuiltinESMExports() // so that no pause takes time
mock.method(console, 'error', (line: string) => void logged.push(line.replace(/^\S+ /, '')))

/** A store that first fails so often for a session, and notes for which it was to save. */
class Flaky extends CustomStore {
  asked = ''
  failures: Record<string, number> = {}

  override async save(...values: Parameters<CustomStore['save']>): Promise<string | null> {
    const [id] = values
    this.asked += id
    this.failures[id] = (this.failures[id] ?? 0) - 1
    if (this.failures[id] >= 0) throw new Unavailable('an outage')
    return await super.save(...values)
  }

  async turn(sessionId = 's'): Promise<unknown> {
    const stored = await this.load(sessionId)
    return stored && JSON.parse(stored.snapshot ?? '').app_data.turn
  }
}

function testWith(name: string, use: (store: Flaky, url: string) => Promise<void>): void {
  const run = (url: string) => use(new Flaky(declare(url), 'a', OPTIONS, new Secrets(OPTIONS)), url)
  test(name, { timeout: 3000 }, () => serving(createEndpoint(), run))
}

function snapshot(turn: number, more: object = {}): string {
  const { app_data, ...value } = JSON.parse(SNAPSHOT)
  return JSON.stringify({ ...value, app_data: { ...app_data, turn }, ...more })
}

/** Do this work just before the next such step. */
function meanwhile(type: { prototype: object }, step: string, work: () => Promise<unknown>): void {
  const steps = type.prototype as Record<string, (...values: unknown[]) => unknown>
  const act = steps[step]
  async function late(this: unknown, ...values: unknown[]) {
    await work()
    return await act?.apply(this, values)
  }
  mock.method(steps, step, late, { times: 1 })
}

async function copied(store: Flaky, newest: string | null, copies = new Mirror(store, 9999)) {
  if (newest === null) copies.end('s')
  else copies.put('s', newest)
  while (copies.isWaiting) await setImmediate()
}

testWith('the newest snapshot is written beside the turn', async (store) => {
  const copies = new Mirror(store, 9999)
  copies.put('t', snapshot(1))
  copies.put('s', snapshot(1))
  meanwhile(Operations, 'saveSnapshot', async () => copies.put('t', snapshot(3)))
  assert.deepEqual([copies.isWaiting, store.asked], [true, ''])
  await copied(store, snapshot(2), copies)
  assert.deepEqual([await store.turn(), await store.turn('t'), store.asked], [2, 3, 'tst'])
})

testWith('an older one never replaces a newer copy until the end', async (store) => {
  await copied(store, snapshot(5))
  await copied(store, snapshot(4))
  assert.equal(await store.turn(), 5)
  await copied(store, snapshot(2, { created_at: '2026-05-01T10:00:01Z' })) // as after a restore
  assert.equal(await store.turn(), 2)
  await copied(store, null)
  assert.equal(await store.load('s'), null)
})

testWith('an end comes before the turns after it', async (store) => {
  const copies = new Mirror(store, 9999)
  await store.save('s', snapshot(5), null, ID)
  copies.end('s')
  await copied(store, snapshot(6), copies)
  assert.deepEqual([await store.turn(), await store.checkpoints('s')], [6, []])
})

testWith('an outage is retried for each session alone', async (store) => {
  store.failures = { x: 99, s: 7 }
  const copies = new Mirror(store, 9999)
  copies.put('x', snapshot(1))
  await copied(store, snapshot(1), copies)
  assert.equal(store.asked, 'xxxxxxxxssssssss')
  assert.deepEqual([await store.turn('x'), await store.turn()], [null, 1])
  assert.deepEqual(logged.splice(0), ['WARNING session x: not copied: an outage'])
  assert.equal(pauses.join(' '), '1 2 4 8 16 30 30 1 2 4 8 16 30 30')
})

for (const odd of [{ schema_version: '9' }, { x: 'x'.repeat(9999) }]) {
  testWith(`a copy with its own ${Object.keys(odd)} is set aside`, async (store, url) => {
    await store.save('s', snapshot(5, odd), null)
    await copied(store, snapshot(2))
    const [name, ...more] = await store.asides('s')
    const where = `session_id=s&snapshot_id=${name}&scope_type=agent&scope_id=a.set-aside`
    const kept = JSON.parse(await (await fetch(`${url}/snapshots?${where}`)).text())
    const aside = JSON.parse(kept.data.set_aside)
    assert.deepEqual([{ ...aside, ...odd }, more, await store.turn()], [aside, [], 2])
  })
}

testWith('a close does not wait for ever, and takes nothing then', async (store) => {
  store.save = () => new Promise((done) => setTimeout(done, 1000, null).unref())
  const copies = new Mirror(store, 9999)
  copies.put('s', snapshot(2))
  copies.end('t')
  await copies.close()
  copies.put('u', snapshot(2))
  assert.equal(pauses.pop(), 5)
  const lines = ['s', 't', 'u'].map((id) => `session ${id}: not copied: the process ends`)
  assert.deepEqual(
    logged.splice(0),
    lines.map((line) => `WARNING ${line}`),
  )
})

for (const [step, type] of Object.entries({ setAside: CustomStore, saveSnapshot: Operations })) {
  testWith(`what another replica wrote before ${step} is not set aside`, async (store) => {
    const revision = await store.save('s', snapshot(5, { schema_version: '9' }), null)
    meanwhile(type, step, () => store.save('s', snapshot(6), revision))
    const turn = new Cached(createSettings(), OPTIONS, store).load('s')
    await assert.rejects(turn, { type: 'session_conflict' })
    assert.equal(await store.turn(), 6)
    assert.equal((await store.asides('s')).length, type === Operations ? 1 : 0)
  })
}
