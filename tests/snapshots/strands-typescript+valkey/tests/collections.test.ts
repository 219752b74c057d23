// The collections of this project, the findings of `check`, and secrets.

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { SETTINGS } from '../src/capabilities.ts'
import { OtherConfig } from '../src/collections/backends.ts'
import { checkProject, loadProject } from '../src/collections/check.ts'
import { Secrets } from '../src/collections/secrets.ts'
import { createSettings } from '../src/settings.ts'
import './apart.ts'

const PROJECT = join(import.meta.dirname, '..')
const BACKENDS = {
  valkey: 'endpoint_secret: env:SESSIONS, ttl_seconds: 86400',
  s3: 'bucket_secret: env:SESSIONS, region: eu-west-1, ttl_days: 7',
  custom: 'transport: {type: rest-api, base_url: env:SESSIONS, credentials: {scheme: none}}',
  agentcore_memory:
    'memory_id_secret: env:SESSIONS, region: eu-west-1, retrieval_config: {"/f/{actorId}": {}}',
  knowledge_base:
    'knowledge_base_id_secret: env:SESSIONS, data_source_id_secret: env:SESSIONS, ' +
    'region: eu-west-1, retrieval_config: {"/f/{actorId}": {}}',
}
type Type = keyof typeof BACKENDS
const OTHERS: readonly Type[] = OtherConfig.shape.type.options
const FILES = {
  'collections/sessions.collection.md': `---
spec_version: "1.2"
collection_id: "sessions"
version: "1.0.0"
status: "active"
meta: {name: "Sessions", description: "One. Two.", owner: "me", last_updated: "2026-04-01"}
scope: {lifetime: "LIFETIME"}
writeback: {enabled: true}
backend: {type: TYPE}
---`,
  'agents/helper.agent.md': `---
agent_id: "helper"
memory:
  mode: "user"
  read_collections: ["sessions"]
  write_collections: ["sessions"]
---`,
  'iam/helper.iam.md':
    '---\nagent_id: "helper"\ncollections: [{ref: "sessions", access: "read-write"}]\n---',
}

/** Write a project in which the first `old` is replaced, and clear the environment. */
function project(context: TestContext, type: Type, old = '', by = ''): string {
  const [folder, environment] = [mkdtempSync(join(tmpdir(), 'collections-')), process.env]
  process.env = { HOME: folder, BAD: 'a b' }
  context.after(() => {
    process.env = environment
    rmSync(folder, { recursive: true })
  })
  const lifetime = type === 'valkey' || type === 's3' ? 'session' : 'user'
  for (const [path, text] of Object.entries(FILES)) {
    const whole = text.replace('LIFETIME', lifetime).replace('TYPE', `${type}, ${BACKENDS[type]}`)
    mkdirSync(join(folder, dirname(path)))
    writeFileSync(join(folder, path), whole.replace(old, by))
  }
  return folder
}

test('the files of this project have no errors', () => {
  const found = checkProject(PROJECT, null)
  assert.ok(found.every(({ severity }) => severity === 'warning'))
  loadProject(PROJECT, null)
})

type Row = [old: string, by: string, found: string[]]
const FINDINGS: Row[] = [
  ['"1.0.0"', '1.0', ['AML-E302 colle:4']],
  ['meta: ', 'meta:\t', ['AML-E0D1 colle:6']],
  ['"2026-04-01"', '"2026', ['AML-E002 colle:6']],
  [', owner: "me"', '', ['AML-E301 colle:6']],
  ['scope', 'color: 1\nscope', ['AML-E303 colle:7']],
  ['"active"', '"disabled"', ['AML-E102 agent:5', 'AML-E102 agent:6', 'AML-E102 iam/h:3']],
  ['enabled: true', 'enabled: false', ['AML-E107 agent:6', 'AML-E108 iam/h:3']],
  ['"read-write"', '"read"', ['AML-E106 agent:6']],
  ['', '', ['AML-W240 colle:9']],
]
for (const type of Object.keys(BACKENDS) as Type[]) {
  // An id may be any text; a knowledge base has a second one.
  const ids = { agentcore_memory: [], knowledge_base: ['AML-W240 colle:9'] }
  const unfit: Row = ['SESSIONS', 'BAD', ids[type as keyof typeof ids] ?? ['AML-E113 colle:9']]
  const other: Row = ['', '', ['AML-E10D colle:9']]
  for (const [old, by, expected] of OTHERS.includes(type) ? [other] : [...FINDINGS, unfit]) {
    test(`finds ${expected.join(', ')} in ${type} after ${JSON.stringify(by)}`, (context) => {
      const found = checkProject(project(context, type, old, by), null)
      const lines = found.map(({ id, file, line }) => `${id} ${file.slice(0, 5)}:${line}`)
      assert.deepEqual(lines, expected)
    })
  }
}

test('reads a secret from the environment, else from AWS, and quotes no value', async (context) => {
  const answer = JSON.stringify({ SecretString: '{"token": "from AWS"}' })
  const server = createServer((_, response) => response.end(answer)).listen(0, '127.0.0.1')
  context.after(() => server.close())
  await new Promise((resolve) => server.once('listening', resolve))
  const AWS_ENDPOINT_URL = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const aws = { AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID: 'x', AWS_SECRET_ACCESS_KEY: 'x' }
  const variables = { ...aws, AWS_REGION: 'eu-west-1', A_B: 'from here', JSON_VALUE: '{"a": 1}' }
  project(context, 'valkey')
  Object.assign(process.env, variables)
  const secrets = new Secrets(createSettings({ secretCacheSeconds: 60 }, SETTINGS))
  const get = (reference: string) => secrets.get({ reference, key: null, region: null })
  assert.equal(await get('a/b'), 'from here')
  assert.equal(await get('c/d#token'), 'from AWS')
  await assert.rejects(get('env:UNSET'), /'env:UNSET' \(variable UNSET\): the variable is not set/)
  await assert.rejects(get('json/value#a'), (error: Error) => !error.message.includes('{'))
})
