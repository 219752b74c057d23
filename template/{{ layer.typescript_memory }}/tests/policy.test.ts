// What the agent needs on AWS: the policy of its role, and the memory as it has to be.

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { AgentCore } from '../src/memory/agentcore.ts'
import { createOptions } from '../src/memory/options.ts'
import { checkPolicy, policyOf } from '../src/memory/policy.ts'
import { loadProject } from '../src/memory/project.ts'
import { checkResources } from '../src/memory/resource_check.ts'

const OPTIONS = createOptions()
const MEMORY = 'arn:aws:bedrock-agentcore:eu-west-1:${AWS_ACCOUNT_ID}:memory/${SECRETS_NOTES}'
const BUCKET = 'arn:aws:s3:::${BUCKET}'
const SECRET = 'arn:aws:secretsmanager:${AWS_REGION}:${AWS_ACCOUNT_ID}:secret:secrets/notes-??????'
const CONFIG = { '/users/{actorId}/facts': {}, 'users/{actorId}/*': {} }
const NOTES = {
  type: 'agentcore_memory',
  memory_id_secret: 'secrets/notes',
  region: 'eu-west-1',
  retrieval_config: CONFIG,
}
const S3 = { type: 's3', bucket_secret: 'env:BUCKET', region: 'eu-west-1', prefix: 'p' }
const SCHEME = { credentials: { scheme: 'iam-role' } }
const COPY = { type: 'lambda', provider: 'aws', function_id: 'copy', ...SCHEME }
const BACKENDS: Record<string, [lifetime: string, backend: object]> = {
  notes: ['user', NOTES],
  'our-sessions': ['session', { ...S3, ttl_days: 7 }],
  copies: ['project', { type: 'custom', transport: COPY }],
}
const ALL = Object.keys(BACKENDS)
const EXPECTED = [
  ['RecallNotes', ['bedrock-agentcore:RetrieveMemoryRecords'], [MEMORY]],
  ['RecallBelowNotes', ['bedrock-agentcore:RetrieveMemoryRecords'], [MEMORY]],
  ['RecordNotes', ['bedrock-agentcore:CreateEvent'], [MEMORY]],
  ['ObjectsOurSessions', ['s3:GetObject', 's3:PutObject', 's3:DeleteObject'], [`${BUCKET}/p/*`]],
  [
    'BucketOurSessions',
    ['s3:ListBucket', 's3:GetLifecycleConfiguration', 's3:PutLifecycleConfiguration'],
    [BUCKET],
  ],
  [
    'InvokeCopies',
    ['lambda:InvokeFunction'],
    ['arn:aws:lambda:${AWS_REGION}:${AWS_ACCOUNT_ID}:function:copy'],
  ],
  ['Secrets', ['secretsmanager:GetSecretValue'], [SECRET]],
]
type Statement = { Sid: string; Action: string[]; Resource: string[]; Condition?: object }

/** A project whose agent has these lists; `notes` changes the backend of that collection. */
function write(context: TestContext, reads: string[], writes: string[], notes: object = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'policy-'))
  context.after(() => rmSync(folder, { recursive: true }))
  const memory = { mode: 'user', read_collections: reads, write_collections: writes }
  const files: Record<string, object> = { 'agents/a.agent.md': { agent_id: 'a', memory } }
  for (const [id, [lifetime, backend]] of Object.entries(BACKENDS)) {
    files[`collections/${id}.collection.md`] = {
      spec_version: '1.2',
      collection_id: id,
      version: '1.0.0',
      status: 'active',
      meta: { name: 'N', description: 'One. Two.', owner: 'o' },
      scope: { lifetime },
      backend: { ...backend, ...(id === 'notes' ? notes : {}) },
      writeback: { enabled: true },
    }
  }
  for (const [name, value] of Object.entries(files)) {
    mkdirSync(join(folder, dirname(name)), { recursive: true })
    writeFileSync(join(folder, name), `---\n${JSON.stringify(value)}\n---\n`)
  }
  return folder
}

function statementsOf(folder: string): Statement[] {
  return (policyOf(loadProject(folder)) as { Statement: Statement[] }).Statement
}

test('the policy holds what the collections need', (context) => {
  const statements = statementsOf(write(context, ALL, ALL))
  assert.deepEqual(
    statements.map(({ Sid, Action, Resource }) => [Sid, Action, Resource]),
    EXPECTED,
  )
  const [exact, below] = statements.map(({ Condition }) => Condition)
  assert.deepEqual(exact, { StringLike: { 'bedrock-agentcore:namespace': ['/users/*/facts/'] } })
  assert.deepEqual(below, { StringLike: { 'bedrock-agentcore:namespacePath': ['/users/*/'] } })
})

test('the policy holds nothing for what is not used', (context) => {
  const statements = statementsOf(write(context, ['our-sessions', 'copies'], []))
  assert.deepEqual(
    statements.map(({ Action }) => Action),
    [['s3:GetObject'], ['s3:ListBucket']],
  )
})

test('a saved policy may be filled in and not otherwise changed', (context) => {
  const folder = write(context, ['notes'], ['notes'])
  assert.deepEqual(checkPolicy(folder, OPTIONS), [])
  const policy = JSON.stringify(policyOf(loadProject(folder)))
  const text = policy.replaceAll('${AWS_ACCOUNT_ID}', '1'.repeat(12))
  mkdirSync(join(folder, 'iam'))
  const ids = (saved: string) => {
    writeFileSync(join(folder, 'iam/a.policy.json'), saved)
    return checkPolicy(folder, OPTIONS).map(({ id }) => id)
  }
  assert.deepEqual(ids(text), [])
  for (const other of [text.replace('CreateEvent', '*'), '[]', '{']) {
    assert.deepEqual(ids(other), ['AML-W248'])
  }
})

test('the memory is compared with the collection', async (context) => {
  const templates = ['/users/{actorId}/facts/', '/by/{memoryStrategyId}/', '/context/{sessionId}']
  const strategies = templates.map((one) => ({ id: 's-1', namespaces: [one] }))
  const cases: [change: object, config: object | undefined, expected: string[]][] = [
    [{}, CONFIG, []],
    [{ status: 'CREATING' }, CONFIG, ['AML-W243']],
    [{ strategies: [{ id: 'own', namespaces: [] }] }, { '/other': {} }, []],
    [{}, { '/users/{actorId}': {}, '/projects/{projectId}': {} }, ['AML-W244', 'AML-W245']],
    [{}, { '/context/{actorId}': {} }, ['AML-W244']],
    [{}, { '/by/*': {}, '/by/s-1': {} }, []],
    [{}, undefined, []],
    [{ strategies: [{ id: 's', namespaces: ['/all'] }] }, undefined, ['AML-W246']],
  ]
  for (const name of ['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'SECRETS_NOTES']) {
    const before = process.env[name]
    process.env[name] = 'notes-0123456789'
    context.after(() => {
      delete process.env[name]
      if (before !== undefined) process.env[name] = before
    })
  }
  for (const [change, config, expected] of cases) {
    const resource = { status: 'ACTIVE', strategies, namespaceKeys: [], ...change }
    const { mock } = context.mock.method(AgentCore.prototype, 'describe', async () => resource)
    const folder = write(context, ['notes'], [], { retrieval_config: config })
    const found = await checkResources(folder, { ...OPTIONS, projectId: 'apollo' })
    assert.deepEqual(
      found.map(({ id }) => id),
      expected,
    )
    mock.restore()
  }
})
