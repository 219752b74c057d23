// Random schedules of turns through a TypeScript render's own `turn`, with the real framework.
//
// Runs in a copy of an installed render, in its `tests`: see `test_stateful.py`.
// After every step a session holds exactly the turns that were reported as committed, in order.

import assert from 'node:assert/strict'
import { mock } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import fc from 'fast-check'
import { LRUCache } from 'lru-cache'

import { Turn } from '../src/contract.ts'
import { Runtime } from '../src/runtime.ts'
import { InProcess, type Stored } from '../src/session_store.ts'
import { Sessions } from '../src/sessions.ts'
import { createSettings } from '../src/settings.ts'
import { takeTurn } from '../src/turn.ts'
import { ScriptedModel, type Step } from './scripted_model.ts'

type Cancel = '' | 'at once' | 'mid'
type Turn = { session: string; steps: Step[]; cancel: Cancel }
type Rule = (machine: Machine) => Promise<void>

const [CAPACITY, IDLE_SECONDS] = [3, 100]
const SESSIONS = ['a', 'b', 'c', 'd']
const TOOL: Step = ['count', ['call']]
const GOOD: Step[][] = [
  [['ok']],
  [['o', 'k']],
  [TOOL, ['ok']],
  [TOOL, TOOL, ['ok']],
  [[['call']], ['ok']],
]
const BROKEN: Record<string, Step> = {
  'fail before': [new Error('no')],
  'fail mid': ['half', new Error('no')],
  empty: [],
  blank: [' \n'],
  length: ['half', ['length']],
  filter: ['half', ['filter']],
  cut: ['half', ['cut']],
}
// The same, and each of them after a tool was called.
const BAD = Object.values(BROKEN).flatMap((step) => [[step], [TOOL, step]])
const SLOW: Step[][] = [[['half', 60]], [TOOL, ['half', 60]]]

let now = 1 // the clock of the sessions, in milliseconds; 0 is no time to them
mock.method(performance, 'now', () => now)
mock.method(console, 'error', () => {}) // the log

/** The cache inside a store, which shows it to nobody. */
function entriesOf(store: InProcess): LRUCache<string, Stored> {
  const get = mock.method(LRUCache.prototype, 'get')
  void store.load('')
  get.mock.restore()
  return get.mock.calls[0]!.this as LRUCache<string, Stored>
}

class Machine {
  readonly runtime: Runtime
  readonly model = new ScriptedModel([])
  readonly entries: LRUCache<string, Stored>
  /** What the model does, by the prompt of the turn. */
  readonly plans = new Map<string, { session: string; steps: Step[] }>()
  /** The prompt that runs in each session, and those that ran beside another one. */
  readonly running = new Map<string, string>()
  readonly overlaps: string[] = []
  /** The history of each session that is still kept, word by word. */
  committed = new Map<string, string[]>()
  count = 0

  constructor() {
    const given = { sessionCapacity: CAPACITY, sessionIdleSeconds: IDLE_SECONDS }
    const settings = createSettings({ ...given, sessionQueue: 20, historyMessages: 100_000 })
    const store = new InProcess(settings)
    this.entries = entriesOf(store)
    const sessions = new Sessions(settings, store)
    this.runtime = Object.assign(new Runtime(settings), { sessions })
    this.runtime.model = this.model
    const shift = () => {
      const asked = this.model.calls.at(-1)!.split(' ')
      const prompt = asked.findLast((word) => this.plans.has(word))!
      const { session, steps } = this.plans.get(prompt)!
      if ((this.running.get(session) ?? prompt) !== prompt) this.overlaps.push(prompt)
      this.running.set(session, prompt)
      return steps.shift()
    }
    this.model.script = { shift } as Step[]
  }

  /** One turn, cancelled at once or at its first chunk; what it reports is believed. */
  async take({ session, steps, cancel }: Turn): Promise<void> {
    const prompt = `prompt${++this.count}`
    this.plans.set(prompt, { session, steps: [...steps] })
    const stop = new AbortController()
    const emit = async () => {
      if (cancel === 'mid') stop.abort(new Error('cancelled'))
    }
    const request = new Turn({ sessionId: session, actor: null, key: null, prompt, emit })
    const turn = takeTurn(this.runtime, request, stop.signal)
    if (cancel === 'at once') stop.abort(new Error('cancelled'))
    const reported = await turn.catch((error) => error)
    if (this.running.get(session) === prompt) this.running.delete(session)
    if (reported instanceof Error) return
    // When it is the first one, the session was forgotten before it began.
    const before = reported.turn === 1 ? [] : (this.committed.get(session) ?? [])
    this.committed.set(session, [...before, ...shown(prompt, steps)])
    assert.equal(this.history(session).filter(isPrompt).length, reported.turn)
  }

  async run(...turns: Turn[]): Promise<void> {
    await Promise.all(turns.map((turn) => this.take(turn)))
    this.forget()
  }

  forget(): void {
    const kept = new Set(this.entries.keys())
    this.committed = new Map([...this.committed].filter(([session]) => kept.has(session)))
  }

  history(session: string): string[] {
    return this.committed.get(session) ?? []
  }

  async turn(session: string, steps: Step[]): Promise<void> {
    const before = this.history(session)
    await this.run({ session, steps, cancel: '' })
    const prompt = `prompt${this.count}`
    assert.deepEqual(this.history(session), [...before, ...shown(prompt, steps)])
    assert.equal(this.model.calls.at(-steps.length), [...before, prompt].join(' '))
  }

  async brokenTurn(turn: Turn): Promise<void> {
    const before = new Map(this.committed)
    await this.run(turn)
    assert.deepEqual(this.committed, before)
  }

  async evict(sessions: string[]): Promise<void> {
    for (const session of sessions) await this.turn(session, GOOD[0]!)
    assert.deepEqual([...this.committed.keys()].toSorted(), sessions.slice(-CAPACITY).toSorted())
  }

  async expire(seconds: number): Promise<void> {
    now += seconds * 1000
    await sleep(2) // the cache looks at the clock once in a millisecond
    this.forget()
    if (seconds > IDLE_SECONDS) assert.equal(this.committed.size, 0)
  }

  /** Sessions are the committed turns. */
  check(): void {
    assert.deepEqual(this.overlaps, [])
    assert.ok(this.entries.size <= CAPACITY)
    assert.equal(this.runtime.sessions.queues.size, 0)
    assert.deepEqual(new Set(this.entries.keys()), new Set(this.committed.keys()))
    for (const [session, history] of this.committed) {
      const stored = JSON.parse(this.entries.peek(session)!.snapshot)
      assert.equal(stored.app_data.turn, history.filter(isPrompt).length)
      assert.deepEqual(wordsOf(stored.data.messages), history)
    }
  }
}

/** What a turn of these steps adds to what the model is asked later, word by word. */
function shown(prompt: string, steps: Step[]): string[] {
  const words = steps.flatMap((step) => [
    ...step.filter((item) => typeof item === 'string'),
    ...(step.some((item) => Array.isArray(item)) ? ['(toolUse)', '(toolResult)'] : []),
  ])
  return [prompt, ...words]
}

function isPrompt(word: string): boolean {
  return word.startsWith('prompt')
}

/** The words of stored messages; the prompts alone are the user's, and each call has its result. */
function wordsOf(messages: { role: string; content: string | object[] }[]): string[] {
  const words: string[] = []
  const waiting: string[] = []
  for (const { role, content } of messages) {
    for (const block of typeof content === 'string' ? [{ text: content }] : content) {
      const [word, id] = read(block)
      words.push(word)
      if (word === '(toolUse)') waiting.push(id)
      else if (word === '(toolResult)') assert.equal(waiting.shift(), id)
      else assert.deepEqual([waiting, role], [[], isPrompt(word) ? 'user' : 'assistant'])
    }
  }
  assert.deepEqual(waiting, [])
  return words
}

/** A block of a message as Strands or the AI SDK stores it: its word, and the id of a call. */
function read(block: any): [word: string, id: string] {
  const call = block.toolUse ?? (block.type === 'tool-call' ? block : null)
  if (call) return ['(toolUse)', call.toolUseId ?? call.toolCallId]
  const result = block.toolResult ?? (block.type === 'tool-result' ? block : null)
  if (result) return ['(toolResult)', result.toolUseId ?? result.toolCallId]
  return [block.text, '']
}

const aSession = fc.constantFrom(...SESSIONS)
const aTurn = fc.record<Turn>({
  session: aSession,
  steps: fc.constantFrom(...GOOD, ...BAD),
  cancel: fc.constantFrom<Cancel>('', '', '', 'at once', 'mid'),
})
const broken: fc.Arbitrary<Turn> = fc.record<Turn>({
  session: aSession,
  steps: fc.constantFrom(...BAD),
  cancel: fc.constant<Cancel>(''),
})
const cancelled: fc.Arbitrary<Turn> = fc.record<Turn>({
  session: aSession,
  steps: fc.constantFrom(...SLOW),
  cancel: fc.constantFrom<Cancel>('at once', 'mid'),
})

/** A step that shows its name and its arguments, when the schedule it is in fails. */
function rule<T>(name: string, given: fc.Arbitrary<T>, act: (m: Machine, it: T) => Promise<void>) {
  return given.map((it): Rule => {
    const step: Rule = (machine) => act(machine, it)
    return Object.assign(step, { [fc.toStringMethod]: () => `${name}(${fc.stringify(it)})` })
  })
}

const rules = fc.oneof(
  rule('turn', fc.tuple(aSession, fc.constantFrom(...GOOD)), (m, it) => m.turn(...it)),
  rule('broken turn', broken, (m, it) => m.brokenTurn(it)),
  rule('cancelled turn', cancelled, (m, it) => m.brokenTurn(it)),
  rule('turns', fc.array(aTurn, { minLength: 2, maxLength: 6 }), (m, it) => m.run(...it)),
  rule('evict', fc.shuffledSubarray(SESSIONS, { minLength: 4 }), (m, it) => m.evict(it)),
  rule('expire', fc.constantFrom(60, 101), (m, it) => m.expire(it)),
)

const schedules = fc.asyncProperty(
  fc.array(rules, { minLength: 1, maxLength: 6 }),
  async (steps) => {
    const machine = new Machine()
    for (const step of steps) {
      await step(machine)
      machine.check()
    }
  },
)
const { SCHEDULES = '50', SEED } = process.env
const seed = SEED ? { seed: Number(SEED) } : {}
await fc.assert(schedules, { numRuns: Number(SCHEDULES), ...seed })
console.log(`${SCHEDULES} schedules`)
process.exit() // whatever a framework still waits for
