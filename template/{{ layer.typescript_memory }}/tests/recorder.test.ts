// Committed turns on their way to long-term memory: each once, in order, and nobody waits.

import assert from 'node:assert/strict'
import { syncBuiltinESMExports } from 'node:module'
import { beforeEach, mock, test } from 'node:test'
import timers, { setImmediate } from 'node:timers/promises'

import { Unavailable } from '../src/memory/backends.ts'
import { Refused } from '../src/memory/errors.ts'
import { LocalMemory } from '../src/memory/local_memory.ts'
import type { Event, Item } from '../src/memory/memories.ts'
import { prepare, Recorder } from '../src/memory/recorder.ts'

const [pauses, logged]: [number[], string[]] = [[], []]
mock.method(timers, 'setTimeout', async (time: number) => void pauses.push(time / 1000))
syncBuiltinESMExports() // so that no pause takes time
mock.method(console, 'error', (line: string) => void logged.push(line.replace(/^\S+ /, '')))
beforeEach(() => {
  pauses.length = logged.length = 0
})

/** A memory that notes what it is told, and first fails as often as it is to. */
class Noting extends LocalMemory {
  readonly told: Event[] = []
  readonly failures: (Error | null)[] = []

  override async createEvent(event: Event): Promise<void> {
    this.told.push(event)
    const failure = this.failures.shift()
    if (failure) throw failure
  }

  get texts(): string[] {
    return this.told.map(({ items }) => items.map(([, text]) => text).join())
  }
}

function recording(batchSize = 1): [Noting, Recorder] {
  const memory = new Noting('notes', [])
  return [memory, new Recorder([{ collectionId: 'notes', memory, batchSize, project: null }])]
}

function say(recorder: Recorder, texts: string, sessionId = 's'): void {
  const items = [...texts].map((text, at): Item => [at % 2 === 0 ? 'USER' : 'ASSISTANT', text])
  recorder.record({ actor: 'alice', sessionId, projectId: null }, items)
}

async function sent(recorder: Recorder): Promise<void> {
  while (recorder.isWaiting) await setImmediate()
}

test('a turn is one event, and nobody waits for it', async () => {
  const [memory, recorder] = recording()
  say(recorder, 'ab')
  say(recorder, 'cd', 't')
  say(recorder, ' ')
  assert.equal(recorder.isWaiting, true)
  await sent(recorder)
  assert.deepEqual(memory.texts, ['a,b', 'c,d'])
  assert.equal(new Set(memory.told.map(({ token }) => token)).size, 2)
})

test('turns of a session that wait are joined, and none is split', async () => {
  const [memory, recorder] = recording(5)
  for (const texts of ['ab', 'cd', 'ef', 'gh']) say(recorder, texts)
  say(recorder, 'xy', 't')
  await sent(recorder)
  assert.deepEqual(memory.texts, ['a,b', 'c,d,e,f', 'g,h', 'x,y'])
})

test('what fails is sent again, as the same event', async () => {
  const [memory, recorder] = recording()
  memory.failures.push(new Unavailable('an outage'), new TypeError('odd'))
  say(recorder, 'ab')
  say(recorder, 'cd')
  await sent(recorder)
  assert.deepEqual(memory.texts, ['a,b', 'a,b', 'a,b', 'c,d'])
  assert.equal(new Set(memory.told.slice(0, 3)).size, 1)
  assert.ok(0.25 <= pauses[0]! && pauses[0]! <= 0.5 && 0.5 <= pauses[1]! && pauses[1]! <= 1)
  assert.deepEqual(logged, [])
})

test('what is refused is not sent again', async () => {
  const [memory, recorder] = recording()
  memory.failures.push(new Refused('agentcore: ValidationException (HTTP 400)'))
  say(recorder, 'ab')
  say(recorder, 'cd')
  await sent(recorder)
  assert.deepEqual(memory.texts, ['a,b', 'c,d'])
  const why = 'agentcore: ValidationException (HTTP 400)'
  assert.deepEqual(logged, [`ERROR notes: turns not recorded: 1 (${why})`])
})

test('a turn of many texts is several events, each sent until it succeeds', async () => {
  const [memory, recorder] = recording()
  memory.failures.push(null, new Unavailable('an outage'))
  say(recorder, 'x'.repeat(101))
  await sent(recorder)
  assert.deepEqual(
    memory.told.map(({ items }) => items.length),
    [100, 1, 1],
  )
})

test('the oldest go when too many wait, and a close says what is lost', async () => {
  const [memory, recorder] = recording()
  mock.method(memory, 'createEvent', () => new Promise(() => {})) // hangs
  for (let count = 0; count < 1002; count++) say(recorder, 'ab')
  await recorder.close(5)
  assert.deepEqual(logged, [
    'ERROR notes: turns not recorded: 1 (too many wait)',
    'ERROR notes: turns not recorded: 1001 (the process ends)',
  ])
  assert.equal(recorder.isWaiting, false)
})

test('further work is done in order, until it succeeds', async () => {
  const [done, failures] = [[] as string[], [new Error('once')]]
  const recorder = new Recorder([])
  for (const name of ['one', 'two']) {
    const work = async () => {
      const failure = failures.shift()
      if (failure) throw failure
      done.push(name)
    }
    recorder.put('own', work, 3)
  }
  await sent(recorder)
  assert.deepEqual(done, ['one', 'two'])
})

test('texts are as the service takes them', () => {
  const said: Item[] = [
    ['USER', 'a'],
    ['USER', ' '],
    ['USER', 'b'],
    ['ASSISTANT', `${'x'.repeat(99_999)}😀`],
  ]
  const [first, ...pieces] = prepare(said)
  assert.deepEqual(first, ['USER', 'a\n\nb'])
  assert.deepEqual(
    pieces.map(([, text]) => text.length),
    [99_999, 2],
  )
})
