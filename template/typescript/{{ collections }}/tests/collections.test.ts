// The collections of this project, the findings of `check`, and secrets.

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { OtherConfig } from '../src/collections/backends.ts'
import { checkProject, loadProject } from '../src/collections/check.ts'
import { Secrets } from '../src/collections/secrets.ts'
import { createSettings } from '../src/settings.ts'
import './apart.ts'

const PROJECT = join(import.meta.dirname, '..')
const BACKENDS = {
  valkey: 'endpoint_secret: "env:SESSIONS", ttl_seconds: 86400',
  s3: 'bucket_secret: "env:SESSIONS", region: "eu-west-1", ttl_days: 7',
  custom: 'transport: {type: rest-api, base_url: "env:SESSIONS", credentials: {scheme: none}}',
  agentcore_memory:
    'memory_id_secret: "env:SESSIONS", region: "eu-west-1", retrieval_config: {"/f/{actorId}": {}}',
}
type Type = keyof typeof BACKENDS
const OTHERS: readonly Type[] = OtherConfig.shape.type.options
const OWN = (Object.keys(BACKENDS) as Type[]).filter((type) => !OTHERS.includes(type))
const FILES = {
  'collections/sessions.collection.md': `---
spec_version: "1.2"
collection_id: "sessions"
version: "1.0.0"
status: "active"
meta:
  name: "Sessions"
  description: "Keeps the completed turns. Other instances continue them."
  owner: "platform"
  last_updated: "2026-04-01"
scope: {lifetime: "LIFETIME"}
writeback: {enabled: true}
backend:
  {type: "TYPE", FIELDS}
---`,
  'agents/helper.agent.md': `---
agent_id: "helper"
memory:
  mode: "user"
  read_collections: ["sessions"]
  write_collections: ["sessions"]
---`,
  'iam/helper.iam.md': `---
agent_id: "helper"
collections: [{ref: "sessions", access: "read-write"}]
---`,
}

/** A project in which one text is replaced; its variables are the environment of the test. */
function project(
  context: TestContext,
  type: Type,
  variables: NodeJS.ProcessEnv,
  old = '',
  by = '',
): string {
  const [folder, environment] = [mkdtempSync(join(tmpdir(), 'collections-')), process.env]
  process.env = { HOME: folder, ...variables }
  context.after(() => {
    process.env = environment
    rmSync(folder, { recursive: true })
  })
  const lifetime = type === 'valkey' || type === 's3' ? 'session' : 'user'
  for (const [path, text] of Object.entries(FILES)) {
    const whole = text.replace('LIFETIME', lifetime).replace('TYPE', type)
    mkdirSync(join(folder, dirname(path)))
    writeFileSync(join(folder, path), whole.replace('FIELDS', BACKENDS[type]).replace(old, by))
  }
  return folder
}

/** The ids of findings, with file and line. */
function linesOf(folder: string): string[] {
  return checkProject(folder, null).map(({ id, file, line }) => `${id} ${file.slice(0, 5)}:${line}`)
}

test('the files of this project have no errors', () => {
  const found = checkProject(PROJECT, null)
  assert.ok(found.every(({ severity }) => severity === 'warning'))
  loadProject(PROJECT, null)
})

const FINDINGS: [old: string, by: string, found: string[]][] = [
  ['"1.0.0"', '1.0', ['AML-E302 colle:4']],
  ['  owner', '\towner', ['AML-E0D1 colle:9']],
  ['"platform"', '"platform', ['AML-E002 colle:9']],
  ['  last_updated: "2026-04-01"\n', '', ['AML-W205 colle:6']],
  ['  owner: "platform"\n', '', ['AML-E301 colle:6']],
  ['scope', 'color: 1\nscope', ['AML-E303 colle:11']],
  ['"active"', '"disabled"', ['AML-E102 agent:5', 'AML-E102 agent:6', 'AML-E102 iam/h:3']],
  ['enabled: true', 'enabled: false', ['AML-E107 agent:6', 'AML-E108 iam/h:3']],
  ['"read-write"', '"read"', ['AML-E106 agent:6']],
  ['env:SESSIONS', 'env:OTHER', ['AML-W240 colle:14']],
]
for (const type of OWN) {
  const SESSIONS = type === 'custom' ? 'https://h' : 'h'
  for (const [old, by, expected] of FINDINGS) {
    test(`finds ${expected.join(', ')} in ${type} after ${JSON.stringify(by)}`, (context) => {
      assert.deepEqual(linesOf(project(context, type, { SESSIONS }, old, by)), expected)
    })
  }

  test(`a session store in ${type} is read, and has an address`, (context) => {
    const isStore = type !== 'agentcore_memory'
    const unread = project(context, type, { SESSIONS }, 'read_collections: ["sessions"]', '')
    assert.deepEqual(linesOf(unread), isStore ? ['AML-E10C agent:6'] : [])
    const wrong = project(context, type, { SESSIONS: 'a b' })
    assert.deepEqual(linesOf(wrong), isStore ? ['AML-E113 colle:14'] : [])
  })
}

for (const type of OTHERS) {
  test(`names the command that adds the code for ${type}`, (context) => {
    const [found] = checkProject(project(context, type, {}), null)
    const isMemory = type === 'agentcore_memory'
    const answer = isMemory ? 'long_term_memory=agentcore' : `session_store=${type}`
    assert.ok(found!.message.includes(`-r :current: -d ${answer} -x collections/`))
  })
}

test('reads a secret from the environment, else from AWS, and quotes no value', async (context) => {
  const answer = JSON.stringify({ SecretString: '{"token": "from AWS"}' })
  const server = createServer((_, response) => response.end(answer)).listen(0, '127.0.0.1')
  context.after(() => server.close())
  await new Promise((resolve) => server.once('listening', resolve))
  const AWS_ENDPOINT_URL = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const aws = { AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID: 'x', AWS_SECRET_ACCESS_KEY: 'x' }
  const variables = { ...aws, AWS_REGION: 'eu-west-1', A_B: 'from here', JSON_VALUE: '{"a": 1}' }
  project(context, OWN[0]!, variables)
  const secrets = new Secrets(createSettings({ secretCacheSeconds: 60 }))
  const get = (reference: string) => secrets.get({ reference, key: null, region: null })
  assert.equal(await get('a/b'), 'from here')
  assert.equal(await get('c/d#token'), 'from AWS')
  await assert.rejects(get('env:UNSET'), /'env:UNSET' \(variable UNSET\): the variable is not set/)
  await assert.rejects(get('json/value#a'), (error: Error) => !error.message.includes('{'))
})
