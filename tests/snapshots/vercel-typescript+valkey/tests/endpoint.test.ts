// A custom endpoint: what a broken one comes to, and what it is told.

import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { test } from 'node:test'

import { Conflict, Unavailable } from '../src/memory/backends.ts'
import { checkEndpoint } from '../src/memory/endpoint.ts'
import { Secrets } from '../src/memory/secrets.ts'
import { ARN, type Asked, declare, OPTIONS, scripted, serving } from './endpoints.ts'
import { SNAPSHOT, type Step, storeAt } from './endpoints.ts'
import { createEndpoint } from './reference_endpoint.ts'

const JSON_TYPE = { 'Content-Type': 'application/json' }
const NULL: Step = [200, {}, 'null']

const REFUSED: Step[] = [
  [302, { Location: 'http://127.0.0.1:1/' }, ''],
  [200, { 'Content-Type': 'text/html' }, '<html>'],
  [200, JSON_TYPE, ''],
  [204, {}, ''],
  [304, {}, ''],
  [401, {}, 'secret'],
  [500, {}, 'secret'],
  [200, {}, '[1]'],
  [200, {}, 'NaN'],
  [200, {}, '['.repeat(100_000)],
  [200, {}, `"${'x'.repeat(900_000)}"`],
  [200, { 'Content-Length': '99' }, '{}'], // the rest never comes
  [200, { ETag: '*' }, '{}'],
  [200, { 'Content-Encoding': 'gzip' }, '{}'],
]

for (const step of REFUSED) {
  test(`neither a snapshot nor null: ${JSON.stringify(step).slice(0, 40)}`, async () => {
    await serving(scripted([step]), async (url) => {
      const store = storeAt(url.replace('//', '//user:password@'), { timeout_ms: 300 })
      await assert.rejects(store.load('s'), (error: Error) => {
        assert.doesNotMatch(error.message, /password|secret/)
        return error instanceof Unavailable
      })
    })
  })
}

test('retries, credentials, and what is certain', async () => {
  process.env.TOKEN = 't'
  const retry_policy = { max_attempts: 2, on_status: [503], backoff_ms: 1 }
  const credentials = { scheme: 'bearer-token', source: 'env', name: 'TOKEN' }
  const [busy, asked]: [Step, Asked[]] = [[503, {}, ''], []]
  await serving(scripted([busy, NULL, busy, [400, {}, '']], asked), async (url) => {
    const store = storeAt(url, { credentials, retry_policy })
    assert.equal(await store.load('s'), null)
    // The first attempt may have done it.
    const failure = { message: /HTTP 400, attempt 2$/, isCertain: false }
    await assert.rejects(store.save('s', SNAPSHOT, null), failure)
  })
  assert.deepEqual(
    new Set(asked.map(({ headers }) => headers.authorization)),
    new Set(['Bearer t']),
  )
  let closed = ''
  await serving(scripted([]), async (url) => void (closed = url))
  await assert.rejects(storeAt(closed).load('s'), {
    message: /connection refused/,
    isCertain: true,
  })
})

test('what cannot be read is set aside, and a marker is replaced', async () => {
  await serving(createEndpoint(), async (url) => {
    for (const store of [storeAt(url), storeAt(ARN)]) {
      const revision = await store.save('s', SNAPSHOT, null)
      assert.equal((await store.load('s'))?.snapshot, SNAPSHOT)
      await assert.rejects(store.save('s', SNAPSHOT, null), Conflict)
      const name = await store.setAside('s', revision)
      assert.deepEqual([await store.load('s'), await store.asides('s')], [null, [name]])
      assert.deepEqual(await store.checkpoints('s'), [])
      const next = await store.save('s', SNAPSHOT, null)
      assert.deepEqual(await store.load('s'), { revision: next, snapshot: SNAPSHOT })
      await store.end('s')
      await assert.rejects(store.save('s', SNAPSHOT, next), Conflict)
      await store.close()
    }
  })
})

test('an endpoint that departs from the contract is told how', async () => {
  const where = { file: 'f', line: 3 }
  const check = async (url: string) => {
    const found = await checkEndpoint(declare(url), 'a', OPTIONS, new Secrets(OPTIONS), where)
    return found.map(({ id }) => id).join(' ')
  }
  await serving(createEndpoint(), async (url) => {
    assert.deepEqual([await check(url), await check(ARN)], ['', ''])
  })
  const deaf = createServer((_, response) => response.end('null'))
  await serving(deaf, async (url) => assert.equal(await check(url), 'AML-C01'))
  let closed = ''
  await serving(createServer(), async (url) => void (closed = url))
  const local = [await check(closed), await check('env:NOT_SET')]
  assert.deepEqual(local, ['AML-C21', 'AML-C21'])
})
