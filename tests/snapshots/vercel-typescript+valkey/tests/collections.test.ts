// The collections of this project, and how `check` tells what is wrong with one.

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { readOptions } from '../src/memory/options.ts'
import { checkProject, loadProject } from '../src/memory/project.ts'
import { checkSecrets } from '../src/memory/secrets_check.ts'

const PROJECT = join(import.meta.dirname, '..')
const COLLECTION = `---
spec_version: "1.2"
collection_id: "sessions"
version: "1.0.0"
status: "active"
meta:
  name: "Sessions"
  description: "Keeps the turns that were completed. Other instances go on with them."
  owner: "platform"
  last_updated: "2026-04-01"
scope: {lifetime: "session"}
backend:
  type: "valkey"
  endpoint_secret: "secrets/valkey/sessions"
  ttl_seconds: 86400
writeback: {enabled: true}
---
`
const AGENT = `---
agent_id: "helper"
memory:
  mode: "session"
  read_collections: ["sessions"]
  write_collections: ["sessions"]
---
`
const GRANTS = `---
agent_id: "helper"
collections: [{ref: "sessions", access: "read-write"}]
---
`
const FILES = {
  'collections/sessions.collection.md': COLLECTION,
  'agents/helper.agent.md': AGENT,
  'iam/helper.iam.md': GRANTS,
}

function project(context: TestContext, old: string, by: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'collections-'))
  context.after(() => rmSync(folder, { recursive: true }))
  for (const [path, text] of Object.entries(FILES)) {
    mkdirSync(join(folder, dirname(path)))
    writeFileSync(join(folder, path), text.replace(old, by))
  }
  return folder
}

test('nothing is wrong with the collections of this project', () => {
  const found = checkProject(PROJECT)
  assert.deepEqual(
    found.filter(({ severity }) => severity === 'error'),
    [],
  )
  const { collections, reads, writes } = loadProject(PROJECT)
  for (const id of [...reads, ...writes]) assert.ok(collections.has(id))
})

const FOUND: [old: string, by: string, found: string[]][] = [
  ['ttl_seconds: 86400', 'ttl_seconds: 0x10', []],
  ['ttl_seconds: 86400', 'ttl_seconds: 1.5', ['AML-E063 colle:15']],
  ['ttl_seconds: 86400', 'ttl_seconds: &a 5', ['AML-E007 colle:15']],
  ['  ttl_seconds: 86400', '\tttl_seconds: 86400', ['AML-E0D0 colle:15']],
  ['"platform"', '"platform', ['AML-E0D3 colle:9']],
  ['  ttl_seconds: 86400\n', '', ['AML-W206 colle:12']],
  ['"1.0.0"', '1.0', ['AML-E016 colle:4']],
  ['scope', 'color: 1\nscope', ['AML-E003 colle:11']],
  ['"active"', '"disabled"', ['AML-E102 agent:5', 'AML-E102 agent:6', 'AML-E14A iam/h:3']],
  ['mode: "session"', 'mode: "none"', ['AML-E104 agent:5', 'AML-E104 agent:6']],
  ['enabled: true', 'enabled: false', ['AML-E107 agent:6', 'AML-E108 iam/h:3']],
  ['"read-write"', '"read"', ['AML-E106 agent:6']],
]
for (const [old, by, found] of FOUND) {
  test(`finds ${found.join(', ') || 'nothing'} after ${JSON.stringify(by)}`, (context) => {
    const told = checkProject(project(context, old, by))
    assert.deepEqual(
      told.map(({ id, file, line }) => `${id} ${file.slice(0, 5)}:${line}`),
      found,
    )
  })
}

test('a secret that is not there is told', async (context) => {
  const [folder, [options]] = [project(context, 'valkey/sessions"', 'x#url"'), readOptions()]
  const environment = process.env
  const told = async (SECRETS_X = '') => {
    process.env = { HOME: folder, SECRETS_X }
    return (await checkSecrets(folder, options)).map(({ id, line }) => `${id} ${line}`)
  }
  context.after(() => (process.env = environment))
  assert.deepEqual(await told(), ['AML-W242 14'])
  assert.deepEqual(await told('valkey://h'), ['AML-W241 14'])
  assert.deepEqual(await told('{"url": "valkey://h"}'), [])
})
