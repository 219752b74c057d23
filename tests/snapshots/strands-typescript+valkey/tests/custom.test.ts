// A custom endpoint: what it is sent, and what its answers come to.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Unavailable } from '../src/memory/backends.ts'
import type { CustomStore } from '../src/memory/custom_store.ts'
import { createOptions } from '../src/memory/options.ts'
import { Cached } from '../src/memory/stored.ts'
import { createSettings } from '../src/settings.ts'
import { ARN, type Asked, ID, scripted, SENT, serving } from './endpoints.ts'
import { SNAPSHOT, type Step, storeAt } from './endpoints.ts'
import { createEndpoint } from './reference_endpoint.ts'

const PLACE = { session_id: 's', scope: { type: 'agent', scope_id: 'a' } }

async function use(store: CustomStore): Promise<void> {
  assert.equal(await store.save('s', SNAPSHOT, null, ID), '"1"')
  assert.equal(await store.load('s', null, ID), null)
  assert.deepEqual(await store.checkpoints('s'), [])
  assert.equal(await store.load('s'), null)
  await store.end('s')
  await store.close()
}

const OPERATIONS = [
  { operation: 'save_snapshot', snapshot_id: 'latest', is_latest: true, snapshot: SENT },
  { operation: 'save_manifest', manifest: { schema_version: '1.0', updated_at: 'then' } },
  { operation: 'save_snapshot', snapshot_id: ID, is_latest: false, snapshot: SENT },
  { operation: 'load_snapshot', snapshot_id: ID },
  { operation: 'list_snapshot_ids', limit: 1000, start_after: null },
  { operation: 'load_snapshot', snapshot_id: 'latest' },
].map((more) => ({ ...PLACE, ...more }))
const [NULL, EMPTY]: Step[] = [
  [200, {}, 'null'],
  [200, {}, '{"snapshot_ids": []}'],
]
const then = (asked: Asked[]): unknown[] =>
  asked.map(({ body }) =>
    JSON.parse(JSON.stringify(body).replace(/("updated_at":)"[^"]+"/, '$1"then"')),
  )

test('the six operations over REST', async () => {
  const [ok, asked]: [Step, Asked[]] = [[200, { ETag: '"1"' }, '{"ok": true}'], []]
  const script = [ok, ok, ok, NULL!, EMPTY!, [404, {}, 'no'] as Step, ok]
  await serving(scripted(script, asked), (url) => use(storeAt(`${url}/v1`)))
  assert.deepEqual(then(asked), [...OPERATIONS.slice(0, 3), 0, 0, 0, 0])
  assert.deepEqual(
    asked.map(({ route }) => route),
    [
      'POST /v1/snapshots',
      'POST /v1/manifests',
      'POST /v1/snapshots',
      `GET /v1/snapshots?session_id=s&snapshot_id=${ID}&scope_type=agent&scope_id=a`,
      'GET /v1/snapshots/list?session_id=s&limit=1000&scope_type=agent&scope_id=a',
      'GET /v1/snapshots?session_id=s&snapshot_id=latest&scope_type=agent&scope_id=a',
      'DELETE /v1/sessions/s',
    ],
  )
  const conditions = asked.slice(0, 3).map(({ headers }) => headers['if-none-match'])
  assert.deepEqual(conditions, ['*', undefined, undefined])
})

test('the six operations over Lambda', async () => {
  const [ok, asked]: [Step, Asked[]] = [[200, {}, '{"ok": true, "etag": "\\"1\\""}'], []]
  const script = [ok, ok, ok, NULL!, EMPTY!, NULL!, ok]
  await serving(scripted(script, asked), () => use(storeAt(ARN)))
  const bodies: object[] = OPERATIONS.map((one, at) =>
    at === 0 ? { ...one, if_none_match: '*' } : one,
  )
  assert.deepEqual(then(asked), [...bodies, { operation: 'delete_session', session_id: 's' }])
})

for (const becomes of ['stored', 'another', 'unknown']) {
  test(`a save whose answer is lost is looked for, and is ${becomes}`, () =>
    serving(createEndpoint(), async (url) => {
      const store = storeAt(url)
      const [save, load] = [store.save.bind(store), store.load.bind(store)]
      const other = JSON.stringify({ ...JSON.parse(SNAPSHOT), created_at: '2026-05-01T10:00:01Z' })
      store.save = async (id, snapshot, expected) => {
        await save(id, becomes === 'another' ? other : snapshot, expected)
        throw new Unavailable('no answer')
      }
      store.load = async (...values) => {
        if (becomes === 'unknown') throw new Unavailable('no answer')
        return await load(...values)
      }
      const saved = new Cached(createSettings(), createOptions({ checkpoints: 1 }), store)
        .save('s', SNAPSHOT)
        .catch(({ type }) => type)
      assert.equal(await saved, becomes === 'stored' ? undefined : 'store_unavailable')
      assert.equal((await store.checkpoints('s')).length, becomes === 'stored' ? 1 : 0)
    }))
}

test('the reference endpoint bounds the checkpoints', () =>
  serving(createEndpoint(), async (url) => {
    const store = storeAt(url)
    await store.save('s', SNAPSHOT, null)
    const ids = Array.from({ length: 1003 }, (_, at) => ID.slice(0, -4) + `${at}`.padStart(4, '0'))
    for (const id of ids) await store.keep('s', SNAPSHOT, id)
    assert.deepEqual(await store.checkpoints('s'), ids.slice(3))
    assert.notEqual(await store.load('s'), null)
    await store.close()
  }))
