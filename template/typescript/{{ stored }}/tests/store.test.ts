// The session store: turns outlive the process, are never merged, and never lost in silence.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, describe, test } from 'node:test'

import { v7 as uuid7 } from 'uuid'

import { SETTINGS as KIND } from '../src/capabilities.ts'
import { Collection } from '../src/collections/models.ts'
import { Secrets } from '../src/collections/secrets.ts'
import { Sessions } from '../src/sessions.ts'
import { createSettings } from '../src/settings.ts'
import { Conflict, type DurableStore, StoreUnavailable, Unsupported } from '../src/store/base.ts'
import { CachedStore } from '../src/store/cached.ts'
import { checkStore } from '../src/store/capability.ts'
import { DeclaredStore } from '../src/store/declared.ts'
import { ownerOf } from '../src/store/snapshot.ts'
import { Client } from './client.ts'
import type { Step } from './scripted_model.ts'
import { backend, broken, startServer } from './store_server.ts'

const LIMITS = { maxSnapshotBytes: 8000, checkpoints: 3, storeTimeoutSeconds: 30 }
const SETTINGS = createSettings(LIMITS, KIND)
const AGENT = `test-${randomUUID()}`
const SNAPSHOT = JSON.stringify({
  scope: 'agent',
  schema_version: '1.0',
  created_at: '2026-05-01T10:00:00Z',
  data: { messages: [], state: {} },
  app_data: { actor: null, turn: 1, key: null, reply: 'Grüße 😀' },
})
const opened: DurableStore[] = []
const newId = () => randomUUID().slice(0, 8)

const { missing, stop } = await startServer()

/** Open the store, as another process would. */
function open(declared: object = backend, agentId = AGENT): DurableStore {
  const collection = Collection.parse({
    spec_version: '1.2',
    collection_id: 'sessions',
    version: '1.0.0',
    status: 'active',
    meta: { name: 'Sessions', description: 'Stores sessions.', owner: 'tests' },
    scope: { lifetime: 'session' },
    backend: declared,
    writeback: { enabled: true },
  })
  opened.push(new DeclaredStore(collection, agentId, SETTINGS, new Secrets(SETTINGS)))
  return opened.at(-1)!
}

/** A process of the agent with that store. */
function replica(script: Step[] = [], store = open(), isWritable = true): Client {
  const client = new Client(script)
  const sessions = new Sessions(SETTINGS, new CachedStore(SETTINGS, store, isWritable))
  return Object.assign(client, { runtime: Object.assign(client.runtime, { sessions }) })
}

after(async () => {
  for (const store of opened) await store.close()
  await stop()
})

describe('a store', { skip: missing || false }, () => {
  test('returns what was saved last, and knows what is unchanged', async () => {
    const [store, id] = [open(), newId()]
    assert.equal(await store.load(id), null)
    const first = await store.save(id, SNAPSHOT, null)
    const stored = await store.load(id)
    assert.deepEqual(JSON.parse(stored!.snapshot), JSON.parse(SNAPSHOT))
    assert.equal(stored!.revision, first)
    assert.equal(await store.load(id, stored), stored)
    assert.notEqual(await store.save(id, SNAPSHOT.replace('Grüße', 'Gruß'), first), first)
    assert.notEqual(await store.load(id, stored), stored)
    for (const old of [first, null]) await assert.rejects(store.save(id, SNAPSHOT, old), Conflict)
  })

  test('accepts one of many saves that replace the same revision', async () => {
    const id = newId()
    let revision: string | null = null
    for (let round = 0; round < 3; round++) {
      const text = (writer: number) => SNAPSHOT.replace('Grüße', `${round} ${writer}`)
      const saves = [1, 2, 3, 4, 5, 6].map((it) => open().save(id, text(it), revision))
      const results = (await Promise.allSettled(saves)).filter((it) => it.status === 'fulfilled')
      assert.equal(results.length, 1)
      revision = results[0]!.value
    }
  })

  test('keeps the last checkpoints, and all is gone after an end', async () => {
    const [store, id, ids] = [open(), newId(), [1, 2, 3, 4].map(() => uuid7())]
    let revision: string | null = null
    for (const one of ids) revision = await store.save(id, SNAPSHOT, revision, one)
    assert.deepEqual((await store.checkpoints(id)).slice(-3), ids.slice(1))
    const kept = await store.loadCheckpoint(id, ids[1]!)
    assert.deepEqual(JSON.parse(kept ?? ''), JSON.parse(SNAPSHOT))
    assert.equal(await store.loadCheckpoint(id, uuid7()), null)
    const name = await store.quarantine(id, revision)
    assert.deepEqual([await store.load(id), await store.quarantined(id)], [null, [name]])
    await assert.rejects(store.save(id, SNAPSHOT, revision), Conflict)
    await store.save(id, SNAPSHOT, null)
    await store.end(id)
    const left = [await store.load(id), await store.checkpoints(id), await store.quarantined(id)]
    assert.deepEqual(left, [null, [], []])
  })

  test('lists its sessions if it can, and finds the actor of each', async () => {
    const store = open(backend, `${AGENT}-owner`)
    await store.save('ada', SNAPSHOT.replace('"actor":null', '"actor":"ada"'), null)
    await store.save('bob', SNAPSHOT.replace('"actor":null', '"actor":"bob"'), null)
    const ids = await store.sessions().catch((error) => error)
    if (!(ids instanceof Unsupported)) assert.deepEqual(ids, ['ada', 'bob'])
    const owners = await Promise.all(['ada', 'bob', 'unknown'].map((id) => ownerOf(store, id)))
    assert.deepEqual(owners, ['ada', 'bob', null])
  })

  test('is checked by a session that is not left behind', async () => {
    const store = open(backend, `${AGENT}-check`)
    const found = await checkStore(store, { collection_id: 'sessions' } as Collection, true)
    assert.ok(found.every(({ severity }) => severity === 'warning'))
    const load = store.load.bind(store)
    store.load = async (...values) => {
      const stored = await load(...values)
      return stored && { ...stored, snapshot: stored.snapshot.replace('"turn"', '"t"') }
    }
    const other = await checkStore(store, { collection_id: 'sessions' } as Collection, true)
    const what = 'A session that was saved comes back changed or without: app_data.turn.'
    assert.deepEqual(
      other.flatMap((it) => (it.severity === 'error' ? it.message : [])),
      [what],
    )
    assert.deepEqual(await store.sessions().catch(() => []), [])
  })

  test('names no secret where it fails', async () => {
    const error = await open(broken)
      .save('s', SNAPSHOT, null)
      .catch((why) => why)
    assert.ok(error instanceof StoreUnavailable && !error.indeterminate, String(error))
    assert.doesNotMatch(error.message, /hunter2/)
  })
})

describe('a turn', { skip: missing || false, concurrency: true }, () => {
  test('continues a session of another process, also after a restart', async () => {
    const [id, one, two] = [newId(), replica(), replica()]
    let turn = 0
    for (const it of [one, two, one, one]) assert.equal(await it.say(id, `${turn}`), `${++turn}`)
    const restarted = replica()
    assert.equal(await restarted.say(id, '4'), '5')
    assert.deepEqual(restarted.model.calls, ['0 ok 1 ok 2 ok 3 ok 4'])
    assert.equal(await two.say(`${id}!`), 'end')
    assert.deepEqual([await one.say(id), await two.say(id)], ['1', '2'])
  })

  test('is refused when another process continued or ended the session', async () => {
    for (const [end, outcome, next] of [['', '2', '3'] as const, ['!', 'end', '1'] as const]) {
      const [id, store, fast] = [newId(), open(), replica()]
      const slow = replica([], store)
      assert.equal(await slow.say(id), '1')
      const save = store.save.bind(store)
      store.save = async (...values) => {
        store.save = save
        assert.equal(await fast.say(`${id}${end}`, 'x'), outcome)
        return await save(...values)
      }
      assert.equal(await slow.say(id, '2'), 'session_conflict')
      assert.equal(await slow.say(id), next)
    }
  })

  test('quarantines what cannot be read, and the next one starts anew', async () => {
    const [id, store, one] = [newId(), open(), replica()]
    assert.equal(await one.say(id), '1')
    const stored = await store.load(id)
    const damaged = stored!.snapshot.replace('"turn":1', '"turn":-1')
    await store.save(id, damaged, stored!.revision)
    assert.equal(await one.say(id), 'session_corrupt')
    assert.equal((await store.quarantined(id)).length, 1)
    assert.deepEqual([await replica().say(id), await one.say(id)], ['1', '2'])
  })

  test('refuses what another program saved, and leaves it there', async () => {
    const [id, store, one] = [newId(), open(), replica()]
    assert.equal(await one.say(id), '1')
    const stored = await store.load(id)
    const newer = JSON.stringify({ ...JSON.parse(stored!.snapshot), schema_version: '2.0' })
    const revision = await store.save(id, newer, stored!.revision)
    assert.deepEqual([await one.say(id), await one.say(id)], Array(2).fill('session_foreign'))
    assert.equal((await store.load(id))?.revision, revision)
  })

  test('reads again what is unreadable', async () => {
    const [id, store] = [newId(), open()]
    assert.equal(await replica().say(id), '1')
    const load = store.load.bind(store)
    store.load = async (...values) => {
      store.load = load
      return { ...(await load(...values))!, snapshot: '{' }
    }
    assert.equal(await replica([], store).say(id), '2')
  })

  test('of a session over the limit is without the oldest turns', async () => {
    const [id, long] = [newId(), replica([['a'.repeat(3000)]])]
    assert.deepEqual([await long.say(id, 'one'), await long.say(id, 'two')], ['1', '2'])
    const settings = createSettings({ ...LIMITS, maxSnapshotBytes: 2500 }, KIND)
    const client = replica()
    const sessions = new Sessions(settings, new CachedStore(settings, open(), true))
    Object.assign(client.runtime, { sessions })
    assert.equal(await client.say(id, 'three'), '3')
    assert.deepEqual(client.model.calls, ['two ok three'])
  })

  test('that is too large for the store leaves the session as it was', async () => {
    const [id, client] = [newId(), replica([['a'], ['x'.repeat(9000)]])]
    const turns = [await client.say(id), await client.say(id), await client.say(id)]
    assert.deepEqual(turns, ['1', 'session_too_large', '2'])
  })

  test('is committed where only the reply of the store was lost', async () => {
    const [id, store] = [newId(), open()]
    const save = store.save.bind(store)
    store.save = async (...values) => {
      await save(...values)
      throw new StoreUnavailable('no answer')
    }
    const client = replica([], store)
    assert.deepEqual([await client.say(id), await replica().say(id)], ['1', '2'])
    store.save = async () => {
      throw new StoreUnavailable('no answer')
    }
    assert.deepEqual([await client.say(id), await replica().say(id)], ['store_unavailable', '3'])
  })

  test('is committed although its client left during the save', async () => {
    const [id, store, leave] = [newId(), open(), new AbortController()]
    const [client, gone] = [replica([], store), Promise.withResolvers<void>()]
    const save = store.save.bind(store)
    store.save = async (...values) => {
      leave.abort()
      await gone.promise
      return await save(...values)
    }
    assert.equal(await client.say(id, 'hi', leave.signal), 'gone')
    gone.resolve()
    await client.runtime.turns.drain(1)
    assert.equal(await replica().say(id), '2')
  })

  test('changes nothing in a store that is read-only', async () => {
    const id = newId()
    assert.equal(await replica().say(id), '1')
    const client = replica([], open(), false)
    const outcomes = []
    for (const address of [id, id, `${id}!`, id]) outcomes.push(await client.say(address))
    assert.deepEqual(outcomes, ['2', '3', 'end', '1'])
    assert.equal(await replica().say(id), '2')
  })
})
