// Forgetting a person: what is theirs goes, and nothing that may be another's.

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { type Backend, Unsupported } from '../src/memory/backends.ts'
import { eraseRecords } from '../src/memory/erasing.ts'
import { erase } from '../src/memory/forget.ts'
import type { Memory } from '../src/memory/memories.ts'
import { Place } from '../src/memory/namespaces.ts'
import { ownPlaces } from '../src/memory/ownership.ts'
import { Parts } from '../src/parts.ts'
import { createSettings } from '../src/settings.ts'

const COLLECTION = {
  spec_version: '1.2',
  collection_id: 'notes',
  version: '1.0.0',
  status: 'active',
  meta: { name: 'N', description: 'One. Two.', owner: 'o' },
  scope: { lifetime: 'user' },
  backend: {
    type: 'agentcore_memory',
    memory_id_secret: 'env:NO_MEMORY',
    region: 'eu-west-1',
    retrieval_config: { '/users/{actorId}/facts': {} },
  },
  writeback: { enabled: true },
}
const SESSIONS = {
  ...COLLECTION,
  collection_id: 'sessions',
  scope: { lifetime: 'session' },
  backend: { type: 'valkey', endpoint_secret: 'env:NO_STORE' },
}
const LISTS = {
  mode: 'user',
  read_collections: ['notes', 'sessions'],
  write_collections: ['notes'],
}
const NOTHING = { sessions: 0, events: 0, records: 0 }

/** Parts with a store of several actors' sessions, of which one cannot be read. */
function partsOf(context: TestContext, isListed = true) {
  const [before, folder] = [process.cwd(), mkdtempSync(join(tmpdir(), 'forget-'))]
  context.after(() => {
    process.chdir(before)
    rmSync(folder, { recursive: true })
  })
  process.chdir(folder)
  const files = {
    'agents/a.agent.md': { agent_id: 'a', memory: LISTS },
    'collections/notes.collection.md': COLLECTION,
    'collections/sessions.collection.md': SESSIONS,
  }
  for (const [name, value] of Object.entries(files)) {
    mkdirSync(dirname(name), { recursive: true })
    writeFileSync(name, `---\n${JSON.stringify(value)}\n---\n`)
  }
  const owners = new Map<string, string | null>([
    ['s-1', 'alice'],
    ['s-2', 'alice2'],
    ['s-3', null],
  ])
  const store: Partial<Backend> = {
    sessions: async () => {
      if (!isListed) throw new Unsupported('no')
      return [...owners.keys(), 's-4']
    },
    load: async (id) => {
      const text = JSON.stringify({ app_data: { actor: owners.get(id) } })
      return { revision: '1', snapshot: owners.has(id) ? text : '{' }
    },
    checkpoints: async () => [],
    asides: async () => [],
    end: async (id) => void owners.delete(id),
  }
  const parts = Object.assign(new Parts(createSettings()), { store: store as Backend })
  const say = async (actor: string, sessionId: string) => {
    const who = { actor, sessionId, projectId: null }
    const event = { who, items: [['USER', `I am ${actor}`]] as const, at: new Date() }
    const memory = parts.longTerm.memories.get('notes')!
    await memory.createEvent({ ...event, token: sessionId, project: null })
  }
  return { parts, owners, say }
}

test('what is of one person goes and nothing else', async (context) => {
  const { parts, owners, say } = partsOf(context)
  await say('alice', 's-1')
  await say('alice', 's-9')
  await say('alice2', 's-2')
  const { notes, ...report } = await erase(parts, 'alice')
  const expected = { actor: 'alice', sessions: 1, events: 2, records: 2, could_not: [] }
  assert.deepEqual(report, expected)
  assert.match(notes.join('\n'), /s-4 cannot be read/)
  assert.deepEqual([...owners.keys()], ['s-2', 's-3'])
  const left = readFileSync('.memory/notes.jsonl', 'utf8')
  assert.ok(left.includes('alice2') && !left.includes('"alice"'))
  const again = await erase(parts, 'alice')
  assert.deepEqual({ ...again, notes }, { ...expected, ...NOTHING, notes })
})

test('a store that lists nothing is asked for what is remembered', async (context) => {
  const { parts, owners, say } = partsOf(context, false)
  await say('alice', 's-1')
  await say('alice', 's-2') // in a session that another began
  const { sessions, could_not } = await erase(parts, 'alice')
  assert.deepEqual([sessions, could_not], [1, []])
  assert.deepEqual([...owners.keys()], ['s-2', 's-3'])
})

test('a place is erased when it can be of nobody else', () => {
  const cases: [templates: string[], actor: string, paths: string[]][] = [
    [['/users/{actorId}/facts', 'users/{actorId}/{sessionId}/'], 'alice', ['/users/alice/']],
    [['/by/{sessionId}/{actorId}/*'], 'alice', ['/by/s-1/alice/', '/by/s-2/alice/']],
    [['/{projectId}/{actorId}'], 'alice', ['/apollo/alice/']],
    [['/{actorId}/likes', '/users/{actorId}/facts'], 'alice', ['/alice/', '/users/alice/']],
    [['/{actorId}/likes', '/users/{actorId}/facts'], 'users', ['/users/users/']],
    [['/u/{actorId}', '/u/shared/notes'], 'shared', []],
    [['/{actorId}/likes', '/{sessionId}/likes'], 'alice', []],
    [['/{actorId}-{sessionId}', '/shared'], 'alice', []],
    [['/users/{actorId}'], 'team/alice', []],
  ]
  for (const [templates, actor, paths] of cases) {
    const who = { actor, sessionId: '', projectId: 'apollo' }
    const own = ownPlaces(templates, who, ['s-1', 's-2'])
    assert.deepEqual([...own.places.keys()], paths)
    assert.ok(own.places.size || own.shared.length)
  }
})

test('records that stay are told', async () => {
  const stubborn = { records: async () => [['r-1']], deleteRecords: async () => 0 }
  const report = { actor: 'alice', ...NOTHING, could_not: [], notes: [] }
  const erasing = eraseRecords(stubborn as unknown as Memory, new Place('/users/alice/'), report)
  await assert.rejects(erasing, /1 in \/users\/alice\//)
})
