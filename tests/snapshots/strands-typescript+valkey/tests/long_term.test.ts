// Long-term memory as the turns use it: of whoever talks, and of nobody else.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { LongTerm } from '../src/memory/long_term.ts'
import { add, search } from '../src/memory/memory.ts'
import { collection } from '../src/memory/models.ts'
import { eventSession, resolve, type Who } from '../src/memory/namespaces.ts'
import { createOptions } from '../src/memory/options.ts'
import { Secrets } from '../src/memory/secrets.ts'
import { createSettings } from '../src/settings.ts'

const ALICE: Who = { actor: 'alice', sessionId: 's', projectId: null }
const FACTS = '/users/{actorId}/facts'
const OPTIONS = createOptions()
const DECLARED = {
  spec_version: '1.2',
  collection_id: 'notes',
  version: '1.0.0',
  status: 'active',
  meta: { name: 'Notes', description: 'What people said.', owner: 'platform' },
  scope: { lifetime: 'user' },
  backend: { type: 'agentcore_memory', memory_id_secret: 'env:NO_MEMORY', region: 'eu-west-1' },
  writeback: { enabled: true },
}

test('a namespace is of one person only', () => {
  assert.deepEqual(resolve(FACTS, ALICE).wire, { namespace: '/users/alice/facts/' })
  assert.deepEqual(resolve('u/{actorId}/*', ALICE).wire, { namespacePath: '/u/alice/' })
  assert.equal(resolve('/{actorId}', { ...ALICE, actor: '$&' }).path, '/$&/')
  const wrong: [template: string, actor: string][] = [
    ['/{actorId}', '{sessionId}'],
    ['/{actorId}', 'a/b'],
    ['/{actorId}', ''],
    ['/{other}', 'a'],
    ['/{actorId', 'a'],
    ['/{projectId}', 'a'],
    ['/{actorId}-{sessionId}', 'a'],
  ]
  for (const [template, actor] of wrong) {
    assert.throws(() => resolve(template, { ...ALICE, actor }), RangeError, template)
  }
  assert.match(eventSession('a'.repeat(101)), /^a{60}-[0-9a-f]{32}$/)
})

test('a turn knows whose memory it is', async () => {
  await assert.rejects(search('a'), /Only a turn knows/)
  const notes = collection.parse(DECLARED)
  const collections = new Map([['notes', notes]])
  const project = { agentId: 'helper', collections, reads: ['notes'], writes: ['notes'] }
  const memory = new LongTerm(createSettings(), OPTIONS, project, new Secrets(OPTIONS))
  const ask = { sessionId: 's', actor: 'alice', key: null, prompt: 'a' }
  assert.throws(() => memory.begin({ ...ask, actor: null }), { type: 'actor_required' })
  assert.throws(() => memory.begin({ ...ask, actor: 'a/b' }), { type: 'invalid_actor' })
  const turn = memory.begin(ask)
  add('Tea is green.')
  assert.throws(() => add(' '), RangeError)
  assert.deepEqual([turn.added, memory.turnOf(ask)], [['Tea is green.'], turn])
  assert.match(memory.contacts().join(), /notes\.jsonl, until NO_MEMORY is set$/)
  collections.set('more', { ...notes, collection_id: 'more' })
  const both = { ...project, writes: ['notes', 'more'] }
  const build = () => new LongTerm(createSettings(), OPTIONS, both, new Secrets(OPTIONS))
  assert.throws(build, /collections notes and more both write to one memory/)
})
