// The collections of this project, the findings of `check`, and secrets.

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { describe, test, type TestContext } from 'node:test'

import { SETTINGS } from '../../src/harness/enabled.ts'
import { OtherConfig } from '../../src/harness/collections/backends.ts'
import { checkProject, loadProject } from '../../src/harness/collections/check.ts'
import { Secrets } from '../../src/harness/collections/secrets.ts'
import type { Finding } from '../../src/harness/findings.ts'
import { createSettings } from '../../src/harness/settings.ts'
import './apart.ts'

const PROJECT = join(import.meta.dirname, '../..')
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
type Backend = keyof typeof BACKENDS
const COLLECTION = 'collections/sessions.collection.md'
const AGENT = 'agents/helper.agent.md'
const IAM = 'iam/helper.iam.md'
const FILES = {
  [COLLECTION]: `---
spec_version: "1.2"
collection_id: "sessions"
version: "1.0.0"
status: "active"
meta: {name: "Sessions", description: "One. Two.", owner: "me", last_updated: "2026-04-01"}
scope: {lifetime: "LIFETIME"}
writeback: {enabled: true}
backend: {type: TYPE}
---`,
  [AGENT]: `---
agent_id: "helper"
memory:
  mode: "user"
  read_collections: ["sessions"]
  write_collections: ["sessions"]
---`,
  [IAM]: `---
agent_id: "helper"
collections: [{ref: "sessions", access: "read-write"}]
---`,
}

const ALL = Object.keys(BACKENDS) as Backend[]
// Backends that other template answers add; `check` reports them here.
const UNUSABLE: readonly Backend[] = OtherConfig.shape.type.options
const USABLE = ALL.filter((backend) => !UNUSABLE.includes(backend))

/** Make a folder and an empty environment for a test; the folder is deleted afterwards. */
function makeFolder(context: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'collections-'))
  const environment = process.env
  process.env = { HOME: folder }
  context.after(() => {
    process.env = environment
    rmSync(folder, { recursive: true })
  })
  return folder
}

/** Write a project with one collection, and replace `old` in its files. */
function writeProject(folder: string, backend: Backend, old = '', by = ''): void {
  const lifetime = backend === 'valkey' || backend === 's3' ? 'session' : 'user'
  for (const [path, template] of Object.entries(FILES)) {
    const type = `${backend}, ${BACKENDS[backend]}`
    const text = template.replace('LIFETIME', lifetime).replace('TYPE', type)
    mkdirSync(join(folder, dirname(path)))
    writeFileSync(join(folder, path), text.replace(old, by))
  }
}

/** Return the id, file and line of a finding, as in "AML-E302 agents/helper.agent.md:4". */
function placeOf({ id, file, line }: Finding): string {
  return `${id} ${file}:${line}`
}

test('the files of this project have no errors', () => {
  const findings = checkProject(PROJECT, null)
  const errors = findings.filter(({ severity }) => severity === 'error')
  assert.deepEqual(errors, [])
  loadProject(PROJECT, null)
})

for (const backend of USABLE) {
  describe(`check of a collection in ${backend}`, () => {
    /** Test that after a replacement, `check` reports exactly these findings. */
    function reports(name: string, old: string, by: string, places: string[]): void {
      test(`reports ${name}`, (context) => {
        const folder = makeFolder(context)
        writeProject(folder, backend, old, by)
        const found = checkProject(folder, null).map(placeOf)
        assert.deepEqual(found, places)
      })
    }

    reports('a value of another type', '"1.0.0"', '1.0', [`AML-E302 ${COLLECTION}:4`])
    reports('invalid YAML', 'meta: ', 'meta:\t', [`AML-E0D1 ${COLLECTION}:6`])
    reports('an invalid date', '"2026-04-01"', '"2026', [`AML-E002 ${COLLECTION}:6`])
    reports('a missing field', ', owner: "me"', '', [`AML-E301 ${COLLECTION}:6`])
    reports('an unknown field', 'scope', 'color: 1\nscope', [`AML-E303 ${COLLECTION}:7`])
    reports('uses of a disabled collection', '"active"', '"disabled"', [
      `AML-E102 ${AGENT}:5`,
      `AML-E102 ${AGENT}:6`,
      `AML-E102 ${IAM}:3`,
    ])
    reports('a write to a collection without writeback', 'enabled: true', 'enabled: false', [
      `AML-E107 ${AGENT}:6`,
      `AML-E108 ${IAM}:3`,
    ])
    reports('a write that IAM does not allow', '"read-write"', '"read"', [`AML-E106 ${AGENT}:6`])
    reports('an unset secret', '', '', [`AML-W240 ${COLLECTION}:9`])

    test('reports a secret with an invalid value', (context) => {
      const folder = makeFolder(context)
      writeProject(folder, backend)
      process.env.SESSIONS = 'a b'
      const found = checkProject(folder, null).map(placeOf)
      const isMemory = backend === 'agentcore_memory' || backend === 'knowledge_base'
      const expected = isMemory ? [] : [`AML-E113 ${COLLECTION}:9`] // any text is a valid id
      assert.deepEqual(found, expected)
    })
  })
}

for (const backend of UNUSABLE) {
  test(`check reports ${backend} as unsupported`, (context) => {
    const folder = makeFolder(context)
    writeProject(folder, backend)
    const found = checkProject(folder, null).map(placeOf)
    assert.deepEqual(found, [`AML-E10D ${COLLECTION}:9`])
  })
}

describe('a secret', () => {
  function makeSecrets() {
    const secrets = new Secrets(createSettings({ secretCacheSeconds: 60 }, SETTINGS))
    return (reference: string) => secrets.get({ reference, key: null, region: null })
  }

  test('comes from the environment', async (context) => {
    makeFolder(context)
    process.env.A_B = 'from here'
    const get = makeSecrets()
    assert.equal(await get('a/b'), 'from here')
  })

  test('comes from AWS if the environment lacks it', async (context) => {
    makeFolder(context)
    const answer = JSON.stringify({ SecretString: '{"token": "from AWS"}' })
    const server = createServer((_, response) => response.end(answer)).listen(0, '127.0.0.1')
    context.after(() => server.close())
    await new Promise((resolve) => server.once('listening', resolve))
    const { port } = server.address() as AddressInfo
    process.env.AWS_ENDPOINT_URL = `http://127.0.0.1:${port}`
    process.env.AWS_REGION = 'eu-west-1'
    process.env.AWS_ACCESS_KEY_ID = 'x'
    process.env.AWS_SECRET_ACCESS_KEY = 'x'
    const get = makeSecrets()
    assert.equal(await get('c/d#token'), 'from AWS')
  })

  test('reports the variable to set', async (context) => {
    makeFolder(context)
    const get = makeSecrets()
    await assert.rejects(
      get('env:UNSET'),
      /'env:UNSET' \(variable UNSET\): the variable is not set/,
    )
  })

  test('is not part of an error message', async (context) => {
    makeFolder(context)
    process.env.JSON_VALUE = '{"other": "secret"}'
    const get = makeSecrets()
    await assert.rejects(get('json/value#token'), ({ message }: Error) => {
      assert.doesNotMatch(message, /secret"|\{/)
      return true
    })
  })
})
