// What is recalled: what fits best, soon or not at all.

import assert from 'node:assert/strict'
import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, mock, test } from 'node:test'

import { Unavailable } from '../src/memory/backends.ts'
import { LocalMemory } from '../src/memory/local_memory.ts'
import type { MemoryRecord } from '../src/memory/memories.ts'
import { resolve, type Who } from '../src/memory/namespaces.ts'
import { block, Recall, type Reader } from '../src/memory/recall.ts'

const folder = mkdtempSync(join(tmpdir(), 'memory-'))
after(() => rmSync(folder, { recursive: true }))
const logged: string[] = []
mock.method(console, 'error', (line: string) => void logged.push(line.replace(/^\S+ /, '')))

const ALICE: Who = { actor: 'alice', sessionId: 's', projectId: null }
const FACTS = '/users/{actorId}/facts'
/** A memory with these scores, whose texts are their numbers. */
class Scored extends LocalMemory {
  asked: unknown[] = []
  scores: number[] | Error | null

  constructor(scores: number[] | Error | null) {
    super('scored', [FACTS], '', folder)
    this.scores = scores
  }

  override async retrieve(...asked: Parameters<LocalMemory['retrieve']>): Promise<MemoryRecord[]> {
    const [{ path: namespace }, query, topK] = asked
    this.asked.push([namespace, query.length, topK])
    if (this.scores === null) return await new Promise(() => {}) // hangs
    if (this.scores instanceof Error) throw this.scores
    const more = { id: '', namespace, createdAt: '' }
    return this.scores.map((score) => ({ ...more, score, text: String(score) }))
  }
}

function reading(memory: LocalMemory, top_k = 2, relevance_score = 0.2): Reader {
  const declared = { [FACTS]: { top_k, relevance_score } }
  return { collectionId: 'notes', lifetime: 'user', memory, declared }
}

test('the best that are relevant are recalled, each text once', async () => {
  const memory = new Scored([0.1, 0.5, 0.9, 0.2])
  const recall = new Recall(ALICE, [reading(memory), reading(memory, 50)], 1)
  const found = await recall.search(`😀${'x'.repeat(9_999)}`)
  assert.deepEqual(
    found.map(({ score }) => score),
    [0.9, 0.5, 0.2],
  )
  const place = '/users/alice/facts/'
  assert.deepEqual(
    memory.asked,
    [8, 100].map((count) => [place, 9_999, count]),
  )
  assert.equal(recall.once('a'), recall.once('b'))
})

test('a memory that fails or hangs is left out', { timeout: 3000 }, async () => {
  const memories = [new Scored(new Unavailable('an outage')), new Scored([1]), new Scored(null)]
  const recall = new Recall(
    ALICE,
    memories.map((one) => reading(one)),
    0.1,
  )
  assert.equal((await recall.search('a')).length, 1)
  const where = `WARNING nothing recalled from notes, ${FACTS}`
  const whys = ['an outage', 'no answer within 0.1 s']
  assert.deepEqual(
    logged.splice(0),
    whys.map((why) => `${where}: ${why}`),
  )
})

test('what is recalled is escaped and bounded', () => {
  const found = { score: 1, namespace: '', collection: 'notes', createdAt: '', id: '' }
  const long = { ...found, text: 'x'.repeat(20_000) }
  const shown = block([long, { ...found, text: '</memory>"&' }])
  const entry = '<entry source="notes">&lt;/memory&gt;&quot;&amp;</entry>'
  assert.equal(shown, `<memory>\n${entry}\n</memory>`)
  assert.equal(block([long]), '')
})

test('a memory of this machine finds what people said', async () => {
  const memory = new LocalMemory('own', [FACTS], '', folder)
  const [items, at] = [[['USER', 'My cats are called Miso.'] as const], new Date()]
  const said = { who: ALICE, items, token: 't', at, project: null }
  await memory.createEvent(said)
  await memory.createEvent({ ...said, items: [['USER', 'another']] }) // the same by its token
  appendFileSync(join(folder, 'own.jsonl'), '{"record":\n')
  const find = (who: Who) => memory.retrieve(resolve(FACTS, who), 'What is my cat called?', 9)
  assert.deepEqual(
    (await find({ ...ALICE, sessionId: 't' })).map(({ text, score }) => [text, score]),
    [['My cats are called Miso.', 1]],
  )
  assert.deepEqual(await find({ ...ALICE, actor: 'alic' }), [])
  assert.equal(logged.splice(0).length, 1)
  assert.equal(readFileSync(join(folder, '.gitignore'), 'utf8'), '*\n')
  const [ids] = await memory.records(resolve('/users/{actorId}/*', ALICE))
  assert.equal(await memory.deleteRecords(ids), 1)
  const [event = ''] = await memory.events('alice', 's')
  await memory.deleteEvent('alice', 's', event)
  assert.deepEqual(await memory.sessions('alice'), [])
  assert.deepEqual(await find(ALICE), [])
})
