// The session store: processes share sessions, detect conflicts, and report lost data.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, describe, test } from 'node:test'

import { v7 as uuid7 } from 'uuid'

import { SETTINGS as KIND } from '../../src/harness/enabled.ts'
import { Collection } from '../../src/harness/collections/models.ts'
import { Secrets } from '../../src/harness/collections/secrets.ts'
import { AgentError } from '../../src/harness/contract.ts'
import type { Stored } from '../../src/harness/sessions/session_store.ts'
import { Sessions } from '../../src/harness/sessions/sessions.ts'
import { createSettings } from '../../src/harness/settings.ts'
import {
  Conflict,
  type DurableStore,
  StoreUnavailable,
  Unsupported,
} from '../../src/harness/store/base.ts'
import { CachedStore } from '../../src/harness/store/cached.ts'
import { checkStore } from '../../src/harness/store/capability.ts'
import { DeclaredStore } from '../../src/harness/store/declared.ts'
import { attachFiles, detachFiles, namesIn } from '../../src/harness/store/detached_files.ts'
import { NOTHING, ownerOf } from '../../src/harness/store/snapshot.ts'
import { Client } from './client.ts'
import { type Answer, reply } from './script.ts'
import { backend, broken, startServer } from './store_server.ts'

const LIMITS = { maxSnapshotBytes: 8000, checkpoints: 3, storeTimeoutSeconds: 30 }
const SETTINGS = createSettings(LIMITS, KIND)
const AGENT = `test-${randomUUID()}`

const { missing, stop } = await startServer()
const skip = missing || false
const openStores: DurableStore[] = []

after(async () => {
  for (const store of openStores) await store.close()
  await stop()
})

/** Return a unique session id. */
function newId(): string {
  return randomUUID().slice(0, 8)
}

/** Return a snapshot of a session with one turn. */
function snapshotOf(replied: string, actor: string | null = null): string {
  return JSON.stringify({
    scope: 'agent',
    schema_version: '1.0',
    created_at: '2026-05-01T10:00:00Z',
    data: { messages: [], state: {} },
    app_data: { actor, turn: 1, key: null, reply: replied },
  })
}

/** Open the store like another process. */
function openStore(declared: object = backend, agentId = AGENT): DurableStore {
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
  const store = new DeclaredStore(collection, agentId, SETTINGS, new Secrets(SETTINGS))
  openStores.push(store)
  return store
}

/** Start a process of the agent; all processes share their sessions. */
function startProcess(
  script: readonly Answer[] = [],
  store = openStore(),
  settings = SETTINGS,
  isWritable = true,
): Client {
  const client = new Client(script)
  const cached = new CachedStore(settings, store, isWritable)
  Object.assign(client.runtime, { sessions: new Sessions(settings, cached) })
  return client
}

/** Assert that a turn is committed with this number. */
async function assertCommitted(client: Client, session: string, turn: number): Promise<void> {
  const answer = await client.say('Hello.', { session })
  assert.equal(answer.error, undefined)
  assert.equal(answer.turn, turn)
}

/** Assert that a turn fails with this error. */
async function assertFails(client: Client, session: string, error: string): Promise<void> {
  const answer = await client.say('Hello.', { session })
  assert.equal(answer.error, error)
}

/** Run `work` once, before the next save. */
function beforeNextSave(store: DurableStore, work: () => Promise<void>): void {
  const save = store.save.bind(store)
  store.save = async (...values) => {
    store.save = save
    await work()
    return save(...values)
  }
}

describe('a store', { skip }, () => {
  test('returns the latest snapshot', async () => {
    const store = openStore()
    const id = newId()
    assert.equal(await store.load(id), null)
    const revision = await store.save(id, snapshotOf('Grüße 😀'), null)
    const stored = await store.load(id)
    assert.equal(stored?.revision, revision)
    assert.deepEqual(JSON.parse(stored.snapshot), JSON.parse(snapshotOf('Grüße 😀')))
  })

  test('returns the known snapshot itself while it is unchanged', async () => {
    const store = openStore()
    const id = newId()
    const first = await store.save(id, snapshotOf('one'), null)
    const known = await store.load(id)
    assert.equal(await store.load(id, known), known)
    await store.save(id, snapshotOf('two'), first)
    assert.notEqual(await store.load(id, known), known)
  })

  test('rejects a save with an outdated revision', async () => {
    const store = openStore()
    const id = newId()
    const first = await store.save(id, snapshotOf('one'), null)
    const second = await store.save(id, snapshotOf('two'), first)
    assert.notEqual(second, first)
    await assert.rejects(store.save(id, snapshotOf('three'), first), Conflict)
    await assert.rejects(store.save(id, snapshotOf('three'), null), Conflict)
  })

  test('accepts only one concurrent save', async () => {
    const id = newId()
    let revision: string | null = null
    for (let round = 0; round < 3; round++) {
      const saves = ['a', 'b', 'c', 'd', 'e', 'f'].map((writer) => {
        return openStore().save(id, snapshotOf(`${round} ${writer}`), revision)
      })
      const results = await Promise.allSettled(saves)
      const accepted = results.filter((result) => result.status === 'fulfilled')
      assert.equal(accepted.length, 1)
      revision = accepted[0]!.value
    }
  })

  test('keeps the last checkpoints', async () => {
    const store = openStore()
    const id = newId()
    const checkpoints = [uuid7(), uuid7(), uuid7(), uuid7()]
    let revision: string | null = null
    for (const checkpoint of checkpoints) {
      revision = await store.save(id, snapshotOf('one'), revision, checkpoint)
    }
    const kept = await store.checkpoints(id)
    assert.deepEqual(kept.slice(-3), checkpoints.slice(1))
    const second = await store.loadCheckpoint(id, checkpoints[1]!)
    assert.deepEqual(JSON.parse(second ?? ''), JSON.parse(snapshotOf('one')))
    assert.equal(await store.loadCheckpoint(id, uuid7()), null)
  })

  test('starts a new session after it quarantined a snapshot', async () => {
    const store = openStore()
    const id = newId()
    const revision = await store.save(id, snapshotOf('one'), null)
    const name = await store.quarantine(id, revision)
    assert.equal(await store.load(id), null)
    assert.deepEqual(await store.quarantined(id), [name])
    await assert.rejects(store.save(id, snapshotOf('two'), revision), Conflict)
    await store.save(id, snapshotOf('two'), null)
  })

  test('deletes all data of an ended session', async () => {
    const store = openStore()
    const id = newId()
    const revision = await store.save(id, snapshotOf('one'), null, uuid7())
    await store.quarantine(id, revision)
    await store.save(id, snapshotOf('two'), null)
    await store.end(id)
    assert.equal(await store.load(id), null)
    assert.deepEqual(await store.checkpoints(id), [])
    assert.deepEqual(await store.quarantined(id), [])
  })

  test('lists its sessions, if it supports lists', async () => {
    const store = openStore(backend, `${AGENT}-list`)
    await store.save('first', snapshotOf('one'), null)
    await store.save('second', snapshotOf('one'), null)
    const ids = await store.sessions().catch((error) => error)
    if (!(ids instanceof Unsupported)) assert.deepEqual(ids, ['first', 'second'])
  })

  test('returns the actor of a session', async () => {
    const store = openStore(backend, `${AGENT}-owner`)
    await store.save('session', snapshotOf('one', 'ada'), null)
    assert.equal(await ownerOf(store, 'session'), 'ada')
    assert.equal(await ownerOf(store, 'unknown'), NOTHING)
  })

  test('omits secrets from its errors', async () => {
    const failing = openStore(broken).save('session', snapshotOf('one'), null)
    const error = await failing.catch((cause) => cause)
    assert.ok(error instanceof StoreUnavailable)
    assert.equal(error.indeterminate, false)
    assert.doesNotMatch(error.message, /hunter2/)
  })
})

describe('the check of a store', { skip }, () => {
  const declared = { collection_id: 'sessions' } as Collection

  test('deletes its test session', async () => {
    const store = openStore(backend, `${AGENT}-check`)
    const findings = await checkStore(store, declared, true)
    const errors = findings.filter(({ severity }) => severity === 'error')
    assert.deepEqual(errors, [])
    const left = await store.sessions().catch(() => [])
    assert.deepEqual(left, [])
  })

  test('reports a store that drops a field', async () => {
    const store = openStore(backend, `${AGENT}-fields`)
    const load = store.load.bind(store)
    store.load = async (...values) => {
      const stored = await load(...values)
      return stored && { ...stored, snapshot: stored.snapshot.replace('"turn"', '"t"') }
    }
    const findings = await checkStore(store, declared, true)
    const errors = findings.filter(({ severity }) => severity === 'error')
    assert.equal(errors.length, 1)
    const message = 'A saved session comes back with changed or missing fields: app_data.turn.'
    assert.equal(errors[0]?.message, message)
  })
})

describe('a session', { skip }, () => {
  test('continues in another process', async () => {
    const id = newId()
    const one = startProcess()
    const two = startProcess()
    await assertCommitted(one, id, 1)
    await assertCommitted(two, id, 2)
    await assertCommitted(one, id, 3)
    await assertCommitted(one, id, 4)
  })

  for (const isWritable of [true, false]) {
    test(`is listed for its actor, isWritable: ${isWritable}`, async () => {
      const actor = newId()
      const id = newId()
      const script = [reply('a'), reply('b'), reply('c')]
      const client = startProcess(script, openStore(), SETTINGS, isWritable)
      await client.say('1', { session: id, actor })
      await client.say('2', { session: id, actor })
      await client.say('3', { session: newId(), actor: newId() })
      const { sessions } = client.runtime
      assert.deepEqual(await sessions.turns(id, actor), [
        { number: 1, prompt: '1', reply: 'a' },
        { number: 2, prompt: '2', reply: 'b' },
      ])
      const listed = await sessions.list(actor).catch((error: AgentError) => error)
      if (listed instanceof AgentError) {
        assert.equal(listed.type, 'store_unavailable') // this store cannot list its sessions
        return
      }
      const found = listed.map(({ sessionId, turns }) => [sessionId, turns])
      assert.deepEqual(found, [[id, 2]])
      await sessions.end(id, actor)
      assert.deepEqual(await sessions.list(actor), [])
    })
  }

  test('continues after a restart, with all of its turns', async () => {
    const id = newId()
    const before = startProcess([reply('a'), reply('b')])
    await before.say('1', { session: id })
    await before.say('2', { session: id })
    const restarted = startProcess()
    const next = await restarted.say('3', { session: id })
    assert.equal(next.turn, 3)
    assert.deepEqual(restarted.model.conversations, [['1', 'a', '2', 'b', '3']])
  })

  test('ended by another process starts new', async () => {
    const id = newId()
    const one = startProcess()
    const two = startProcess()
    await assertCommitted(one, id, 1)
    const { ended } = await two.end({ session: id })
    assert.equal(ended, true)
    await assertCommitted(one, id, 1)
    await assertCommitted(two, id, 2)
  })

  test('with unreadable data is quarantined, and the next turn starts new', async () => {
    const id = newId()
    const store = openStore()
    const client = startProcess()
    await assertCommitted(client, id, 1)
    const stored = (await store.load(id)) as Stored
    const damaged = stored.snapshot.replace('"turn":1', '"turn":-1')
    await store.save(id, damaged, stored.revision)
    await assertFails(client, id, 'session_corrupt')
    const quarantined = await store.quarantined(id)
    assert.equal(quarantined.length, 1)
    await assertCommitted(startProcess(), id, 1)
    await assertCommitted(client, id, 2)
  })

  for (const checkpoints of [0, 3]) {
    test(`that is quarantined ends for its known actor, checkpoints: ${checkpoints}`, async () => {
      const id = newId()
      const store = openStore()
      const settings = createSettings({ ...LIMITS, checkpoints }, KIND)
      const client = startProcess([], store, settings)
      await client.say('Hello.', { session: id, actor: 'ada' })
      const stored = (await store.load(id)) as Stored
      const damaged = stored.snapshot.replace('"turn":1', '"turn":-1')
      await store.save(id, damaged, stored.revision)
      const corrupt = await client.end({ session: id, actor: 'ada' })
      assert.equal(corrupt.error, 'session_corrupt')
      const other = await client.end({ session: id, actor: 'eve' })
      assert.equal(other.error, checkpoints ? 'session_forbidden' : 'session_corrupt')
      const ended = await client.end({ session: id, actor: 'ada' })
      assert.equal(ended.error, checkpoints ? undefined : 'session_corrupt')
      const left = await store.quarantined(id)
      assert.equal(left.length, checkpoints ? 0 : 1)
      const kept = await store.checkpoints(id)
      assert.deepEqual(kept, [])
    })
  }

  test('that only another agent has stays', async () => {
    const id = newId()
    await assertCommitted(startProcess(), id, 1)
    const other = startProcess([], openStore(backend, `${AGENT}-other`))
    for (const actor of ['', 'eve']) {
      const ended = await other.end({ session: id, actor })
      assert.equal(ended.error, undefined)
    }
    await assertCommitted(startProcess(), id, 2)
  })

  test('of another program is rejected and unchanged', async () => {
    const id = newId()
    const store = openStore()
    const client = startProcess()
    await assertCommitted(client, id, 1)
    const stored = (await store.load(id)) as Stored
    const newer = JSON.stringify({ ...JSON.parse(stored.snapshot), schema_version: '2.0' })
    const revision = await store.save(id, newer, stored.revision)
    await assertFails(client, id, 'session_foreign')
    await assertFails(client, id, 'session_foreign')
    const left = await store.load(id)
    assert.equal(left?.revision, revision)
  })

  test('with unreadable data is read a second time first', async () => {
    const id = newId()
    await assertCommitted(startProcess(), id, 1)
    const store = openStore()
    const load = store.load.bind(store)
    store.load = async (...values) => {
      store.load = load
      const stored = (await load(...values)) as Stored
      return { ...stored, snapshot: '{' }
    }
    await assertCommitted(startProcess([], store), id, 2)
  })

  test('loses its oldest turns if it exceeds the limit', async () => {
    const id = newId()
    const before = startProcess([reply('a'.repeat(3000))])
    await before.say('one', { session: id })
    await before.say('two', { session: id })
    const settings = createSettings({ ...LIMITS, maxSnapshotBytes: 2500 }, KIND)
    const client = startProcess([], openStore(), settings)
    const third = await client.say('three', { session: id })
    assert.equal(third.turn, 3)
    assert.deepEqual(client.model.conversations, [['two', 'ok', 'three']])
  })

  test('is unchanged by a turn that is too large for the store', async () => {
    const id = newId()
    const client = startProcess([reply('a'), reply('x'.repeat(9000))])
    await assertCommitted(client, id, 1)
    await assertFails(client, id, 'session_too_large')
    await assertCommitted(client, id, 2)
  })

  test('is unchanged by turns with a read-only store', async () => {
    const id = newId()
    await assertCommitted(startProcess(), id, 1)
    const reader = startProcess([], openStore(), SETTINGS, false)
    await assertCommitted(reader, id, 2)
    await assertCommitted(reader, id, 3)
    await reader.end({ session: id })
    await assertCommitted(reader, id, 1)
    await assertCommitted(startProcess(), id, 2)
  })

  test('has no pending turn in a read-only store: each process could run its tools', async () => {
    const id = newId()
    await assertCommitted(startProcess(), id, 1)
    const { revision, snapshot } = (await openStore().load(id))!
    const value = JSON.parse(snapshot)
    const pending = { ...value, app_data: { ...value.app_data, pending: {} } }
    await openStore().save(id, JSON.stringify(pending), revision)
    const reader = startProcess([], openStore(), SETTINGS, false)
    const { last } = await reader.runtime.sessions.read(id, null)
    assert.deepEqual(last, value.app_data)
  })
})

describe('a save', { skip }, () => {
  test('conflicts if another process continued the session', async () => {
    const id = newId()
    const store = openStore()
    const slow = startProcess([], store)
    const fast = startProcess()
    await assertCommitted(slow, id, 1)
    beforeNextSave(store, () => assertCommitted(fast, id, 2))
    await assertFails(slow, id, 'session_conflict')
    await assertCommitted(slow, id, 3)
  })

  test('conflicts if another process ended the session', async () => {
    const id = newId()
    const store = openStore()
    const slow = startProcess([], store)
    const fast = startProcess()
    await assertCommitted(slow, id, 1)
    beforeNextSave(store, async () => {
      await fast.end({ session: id })
    })
    await assertFails(slow, id, 'session_conflict')
    await assertCommitted(slow, id, 1)
  })

  test('succeeds if only the response of the store is lost', async () => {
    const id = newId()
    const store = openStore()
    const save = store.save.bind(store)
    store.save = async (...values) => {
      await save(...values)
      throw new StoreUnavailable('no answer')
    }
    await assertCommitted(startProcess([], store), id, 1)
    await assertCommitted(startProcess(), id, 2)
  })

  test('fails if the request does not reach the store', async () => {
    const id = newId()
    const store = openStore()
    store.save = async () => {
      throw new StoreUnavailable('no answer')
    }
    await assertFails(startProcess([], store), id, 'store_unavailable')
    await assertCommitted(startProcess(), id, 1)
  })

  test('completes although its client disconnects', async () => {
    const id = newId()
    const store = openStore()
    const client = startProcess([], store)
    const leave = new AbortController()
    const left = Promise.withResolvers<void>()
    beforeNextSave(store, async () => {
      leave.abort()
      await left.promise
    })
    const turn = client.say('Hello.', { session: id, signal: leave.signal })
    await assert.rejects(turn, { name: 'AbortError' })
    left.resolve()
    await client.runtime.turns.drain(1)
    await assertCommitted(startProcess(), id, 2)
  })
})

describe('files of a snapshot', () => {
  const long = 'QUJD'.repeat(200)

  test('they leave the snapshot and come back', () => {
    const values = {
      bytes: long,
      data: '-_-_'.repeat(200),
      image: 'QUJD',
      text: long,
      fields: [{ data: `sha256:${'0'.repeat(64)}` }, { data: '=sha256-url:' }, { data: long }],
    }
    const snapshot = JSON.stringify(values)
    const [stored, files] = detachFiles(snapshot, [])
    assert.equal(files.size, 2, 'equal files are one file')
    assert.deepEqual([...files.keys()].sort(), namesIn(stored).sort())
    assert.equal(attachFiles(stored, files), snapshot)
    assert.deepEqual(detachFiles(snapshot, namesIn(stored)), [stored, new Map()])
    const lost = JSON.parse(attachFiles(stored, new Map()))
    assert.deepEqual([lost.bytes, lost.data, lost.text, lost.fields[2].data], ['', '', long, ''])
  })

  test('an old file is uploaded again', (context) => {
    const snapshot = JSON.stringify({ data: long })
    const [stored, files] = detachFiles(snapshot, [])
    context.mock.timers.enable({ apis: ['Date'], now: Date.now() + 86_400_000 })
    const [renewed, again] = detachFiles(snapshot, namesIn(stored))
    assert.deepEqual([...again.values()], [...files.values()])
    assert.deepEqual(namesIn(renewed), [...again.keys()])
    assert.notDeepEqual([...again.keys()], [...files.keys()])
  })
})
