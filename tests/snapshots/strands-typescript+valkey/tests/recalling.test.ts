// An agent remembers people: what a model is shown, what its tools do, and what is kept of it.

import assert from 'node:assert/strict'
import { afterEach, beforeEach, mock, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { LocalMemory } from '../src/memory/local_memory.ts'
import type { MemoryRecord } from '../src/memory/memories.ts'
import { begin, end, rows, Talk } from './talk.ts'

const [MISO, QUESTION] = ['My <cat> is called Miso.', 'What is my cat called?']
const SHOWN = '<memory>\n<entry source="notes">My &lt;cat&gt; is called Miso.</entry>\n</memory>'
const OFFLINE = 'I am the offline model, not a language model: I repeat what I am told.'

const logged = mock.method(console, 'error', () => {})

beforeEach(begin)
afterEach(end)

test('a model is shown what is remembered, and the session does not keep that', async () => {
  const talk = new Talk([['hello'], ['counting', ['call']], ['Miso']])
  await talk.say('alice', MISO, 'before')
  assert.equal(await talk.say('alice', QUESTION), 'countingMiso')
  assert.deepEqual(talk.model.calls.slice(0, 2), [MISO, `${QUESTION} \n\n${SHOWN}`])
  assert.doesNotMatch(await talk.stored('alice'), /memory>/)
})

test('the offline model says what it remembers after all else', async () => {
  const talk = new Talk()
  const now = `${OFFLINE} Now you said: "${QUESTION}"`
  assert.equal(await talk.say('alice', MISO, 'before'), `${OFFLINE} Now you said: "${MISO}"`)
  assert.equal(await talk.say('alice', QUESTION), `${now} I remember: "${MISO}"`)
  assert.equal(await talk.say('bob', QUESTION), now)
})

test('tools search the memory and add to it', async () => {
  process.env.ADD_MEMORY_TOOL = '1'
  const talk = new Talk()
  assert.match(await talk.say('alice', 'use add_memory: Alice likes tea.'), /The tool answered/)
  const [items] = rows('items') as [role: string, text: string][][]
  assert.deepEqual(items?.map(([role]) => role).join(' '), 'USER ASSISTANT USER')
  assert.deepEqual(items?.at(-1), ['USER', 'Alice likes tea.'])
  const search = 'use search_memory: likes tea'
  const [, answer = ''] = (await talk.say('alice', search, 'later')).split('The tool answered')
  assert.match(answer.split('I remember')[0]!, /Alice likes tea\./)
  assert.doesNotMatch(await talk.say('bob', search), /Alice likes tea\./)
})

test('without the setting there is no tool that adds', async () => {
  await new Talk().say('alice', 'use add_memory: Alice likes tea.')
  const [items] = rows('items') as [role: string, text: string][][]
  assert.ok(items?.every(([, text]) => text !== 'Alice likes tea.'))
})

test('a failed turn adds nothing', async () => {
  process.env.ADD_MEMORY_TOOL = '1'
  const short = new Talk([], { maxSteps: 1 })
  await assert.rejects(short.say('alice', 'use add_memory: Alice likes tea.'))
  const talk = new Talk([['half', new Error('secret')], ['fine']])
  await assert.rejects(talk.say('alice', MISO))
  assert.deepEqual(rows('items'), [])
  await talk.say('alice', 'Hello!')
  assert.deepEqual(rows('items'), [
    [
      ['USER', 'Hello!'],
      ['ASSISTANT', 'fine'],
    ],
  ])
})

test('a memory that is late or fails is left out', async (context) => {
  const [talk, start] = [new Talk([['one'], ['two']]), performance.now()]
  const late = context.mock.method(LocalMemory.prototype, 'retrieve', () =>
    sleep(9000, [], { ref: false }),
  )
  logged.mock.resetCalls()
  assert.equal(await talk.say('alice', 'private'), 'one')
  const seconds = (performance.now() - start) / 1000
  assert.ok(0.9 < seconds && seconds < 2.5, `${seconds}`)
  late.mock.mockImplementation(async () => {
    throw new TypeError('private')
  })
  assert.equal(await talk.say('alice', 'private'), 'two')
  const lines = logged.mock.calls.map((call) => (call.arguments as unknown[]).join())
  const recalled = lines.filter((line) => line.includes('recalled'))
  const whys = recalled.map((line) => line.split(': ')[1])
  assert.deepEqual(whys, ['no answer within 1 s', 'TypeError'])
  assert.doesNotMatch(lines.join(), /private/)
})

test('a turn that is aborted while it recalls leaves no trace', async (context) => {
  const talk = new Talk([['never']])
  const retrieve = (): Promise<MemoryRecord[]> => sleep(300, [])
  context.mock.method(LocalMemory.prototype, 'retrieve', retrieve)
  const start = performance.now()
  await assert.rejects(talk.say('alice', QUESTION, 's', 0.1))
  assert.ok(performance.now() - start < 290)
  await sleep(400) // an error that nobody handles would fail the test
  assert.deepEqual([await talk.stored('alice'), rows('items')], ['null', []])
})

test('each namespace is searched once in a turn', async (context) => {
  const asked: unknown[] = []
  const retrieve = LocalMemory.prototype.retrieve
  context.mock.method(
    LocalMemory.prototype,
    'retrieve',
    (...given: Parameters<typeof retrieve>) => {
      const [place, query, topK] = given
      asked.push([place.path, query, topK])
      return Promise.resolve([])
    },
  )
  await new Talk([['counting', ['call']], ['again', ['call']], ['done']]).say('alice', 'Count!')
  assert.deepEqual(asked, [['/users/alice/', 'Count!', 12]])
})

test('whoever is remembered says who they are', async () => {
  const talk = new Talk([['hello']])
  assert.ok(talk.parts.actorRequired)
  await assert.rejects(talk.say(null, 'hi'), { type: 'actor_required' })
  await assert.rejects(talk.say('a/b', 'hi'), { type: 'invalid_actor' })
  assert.deepEqual(talk.model.calls, [])
})

test('what is contacted and kept is told', async () => {
  const { parts } = new Talk()
  const where = '.memory/notes.jsonl, until SECRETS_AGENTCORE_NOTES is set'
  assert.equal((await parts.contacts()).at(-1), `Long-term memory: in ${where}`)
  assert.ok(parts.kept.endsWith(` What was said goes to ${where}.`))
})
