// Random schedules of turns through a TypeScript render's own modules, with the real framework.
//
// Runs in a copy of an installed render, in its `tests`: see `machines.py`. Two runtimes share a
// store. After every save, what is stored is what a model of sessions says; and a tool that needs
// an approval ran once if its approval was claimed, and never otherwise.

import assert from 'node:assert/strict'
import { AsyncLocalStorage } from 'node:async_hooks'
import { mock } from 'node:test'
import { isDeepStrictEqual } from 'node:util'

import fc from 'fast-check'

import * as agent from '../../src/agent.ts'
import { hooks, withCalls } from '../../src/agent.ts'
import { app } from '../../src/app.ts'
import { Answers } from '../../src/harness/approval/waiting.ts'
import { type Settings, SETTINGS } from '../../src/harness/enabled.ts'
import { AgentError, currentTurn, Turn, TurnRequest } from '../../src/harness/contract.ts'
import { Runtime } from '../../src/harness/runtime.ts'
import { InProcess, type Stored } from '../../src/harness/sessions/session_store.ts'
import type { Sessions } from '../../src/harness/sessions/sessions.ts'
import { createSettings } from '../../src/harness/settings.ts'
import { type Answer, fail, reply, stop, toolCall } from './script.ts'
import { ScriptedModel } from './scripted_model.ts'

const [CAPACITY, IDLE_SECONDS, WAITING_SECONDS, HISTORY] = [3, 100, 1000, 8]
const SESSIONS = ['a', 'b', 'c', 'd']
type Step = (string | Error | string[])[]
type Call = [name: string, id: string]
const TOOL: Step = ['count', ['call', 'look_up']]
const MANY = ['call', 'delete_order', 'delete_order']
const GATED: Step[][] = [
  [['may', ['call', 'delete_order']], ['ok']],
  [[['call', 'look_up', 'delete_order']], ['ok']],
  [TOOL, [MANY], TOOL, ['so', ['call', 'delete_order']], ['ok']],
]
const GOOD: Step[][] = [[['ok']], [['o', 'k']], [TOOL, ['ok']], [TOOL, TOOL, ['ok']], ...GATED]
const BROKEN: Step[] = [
  [new Error('no')],
  ['half', new Error('no')],
  [],
  [' \n'],
  ['half', ['length']],
  ['half', ['filter']],
  ['half', ['cut']],
]
// The same, and each of them after a tool was called, or approved.
const BEFORE = [[], [TOOL], GATED[0]!.slice(0, 1)]
const BAD = BROKEN.flatMap((step) => BEFORE.map((before) => [...before, step]))

/** A turn of the model of a session: its texts word by word, and what it left. */
interface Past {
  key: string | null
  words: string[]
  messages: number
  reply: string
  /** The order that was looked up last. */
  seen?: string | undefined
}

/** A turn that waits after so many turns: so far, and with the calls of this step. */
interface Waiting {
  after: number
  /** Of the last request; soFar has that of the first. */
  key: string | null
  soFar: Past
  calls: Call[]
  rest: Step[]
  until: number
  /** Of the ids of its calls. */
  mark: string
}

/** A session of the model: all its turns, of which the first are no longer held. */
interface History {
  turns: Past[]
  first: number
  /** Key and reply, unless a cut took the turn. */
  last: [key: string | null, reply: string]
  waiting?: Waiting | undefined
  /** Turns that a fork copied: their keys repeat nothing. */
  copied: number
}

type Cancel = '' | 'at once' | 'mid'
type Fault = ['' | 'request' | 'reply', number]

/** What somebody asks for, and what became of it. */
interface Operation {
  id: number
  session: string
  steps: Step[]
  prompt: string
  replaces: number | null
  reasons: Map<string, string | null> | null
  key: string | null
  actor: string | null
  writer: number
  cancel: Cancel
  /** Of the request or the reply of its first or second save. */
  fault: Fault
  found: Map<string, History>
  existing: Set<string>
  turn?: Turn
  played: number
  saves: number
  conflicts: number
  isClaimed: boolean
  outcome: string
}

const METHOD = 'answer' in ScriptedModel.prototype ? 'answer' : 'stream'
const EMPTY: History = { turns: [], first: 0, last: [null, ''], copied: 0 }
const OPERATION = new AsyncLocalStorage<Operation>()
let now = 1 // the clock of the sessions, in milliseconds; 0 is no time to them
let wall = 1e12
mock.method(performance, 'now', () => now)
mock.method(Date, 'now', () => wall)
mock.method(console, 'error', () => {}) // the log

/** The session with so many turns, as the model of a turn is shown it. */
function before({ turns: all, first, copied }: History, after: number): History {
  const turns = all.slice(0, after)
  const sizeFrom = (at: number) => turns.slice(at).reduce((sum, past) => sum + past.messages, 0)
  let from = first
  const most = sizeFrom(first) > HISTORY ? HISTORY / 2 : HISTORY
  while (sizeFrom(from) > most && from < after - 1) from++
  return { turns, first: from, last: [null, ''], copied: Math.min(copied, after) }
}

/** The number of the turn that a request with this key repeats, or 0. */
function repeatedBy({ turns, first, last, copied }: History, asked: Operation): number {
  const { key, replaces } = asked
  if (key === null) return 0
  if (key === last[0]) return turns.length
  const index = turns.findIndex((past, at) => {
    const isInPlace = replaces === null || replaces === at + 1
    return at >= Math.max(first, copied) && past.key === key && isInPlace
  })
  return index + 1
}

/** What a step stops with, and the tools that it calls. */
function stopOf(step: Step | undefined): string[] {
  const last = step?.at(-1)
  return Array.isArray(last) ? last : ['']
}

function issue({ id }: Operation, number: number, step: Step): Call[] {
  return stopOf(step)
    .slice(1)
    .map((name, n) => [name, `c${id}x${number}x${n}`])
}

function gatedOf(calls: Call[] = []): string[] {
  return calls.flatMap(([name, id]) => (name === 'delete_order' ? [id] : []))
}

/** What the model does. */
function planOf({ reasons, found, session, steps }: Operation): Step[] {
  return (reasons && found.get(session)?.waiting?.rest) || steps
}

/** A turn with the results of these calls. */
function withResults(past: Past, calls: Call[]): Past {
  const seen = calls.findLast(([name]) => name === 'look_up')?.[1] ?? past.seen
  const words = [...past.words, ...calls.map(() => '(toolResult)')]
  // The AI SDK keeps what was returned before a wait and after it in two messages.
  const isApart = METHOD === 'answer' && new Set(calls.map(([name]) => name)).size > 1
  return { ...past, words, seen, messages: past.messages + (isApart ? 2 : 1) }
}

/** What the calls that wait are called. */
function idsOf({ calls, mark }: Waiting): string[] {
  return gatedOf(calls).map((id) => `${id}.${mark}`)
}

/** The calls that are approved, as the model called them. */
function approvedOf({ reasons }: Operation): string[] {
  return [...(reasons ?? [])].flatMap(([id, reason]) => (reason === null ? [id.split('.')[0]!] : []))
}

function waitingOf({ waiting }: History): Waiting | undefined {
  return waiting && wall / 1000 < waiting.until ? waiting : undefined
}

/** What an operation makes of the session that it found: that, and a number or an error. */
function expect(asked: Operation): [History, string] {
  const { reasons, session, replaces, prompt } = asked
  const found = asked.found.get(session) ?? EMPTY
  const waiting = waitingOf(found)
  if (asked.actor && asked.existing.has(session)) return [found, 'session_forbidden']
  let { key, steps } = asked
  let after = found.turns.length
  let soFar: Past = { key, words: [prompt], messages: 1, reply: '' }
  const isAnswered = reasons && waiting && isDeepStrictEqual([...reasons.keys()], idsOf(waiting))
  if (isAnswered) {
    ;({ after, rest: steps } = waiting)
    soFar = withResults(waiting.soFar, waiting.calls)
    key ??= waiting.key
  } else if (repeatedBy(found, asked) > 0) {
    return [found, `${repeatedBy(found, asked)}`]
  } else if (key && waiting && [waiting.key, waiting.soFar.key].includes(key)) {
    return [found, 'waiting']
  } else if (reasons) {
    return [found, 'not_waiting']
  } else if (replaces !== null) {
    after = (replaces || found.turns.length) - 1
    if (after < found.first || after >= found.turns.length) return [found, 'invalid_request']
    soFar.words = [prompt || found.turns[after]!.words[0]!]
  }
  if (!reasons) soFar.seen = found.turns[after - 1]?.seen
  const staged = before(found, after)
  for (const [number, step] of steps.entries()) {
    const [stop = '', ...tools] = stopOf(step)
    const texts = step.filter((item) => typeof item === 'string')
    if (stop === 'cut' || step.some((item) => item instanceof Error)) return [found, 'model_failed']
    if (['length', 'filter'].includes(stop)) return [found, 'reply_incomplete']
    const words = [...soFar.words, ...texts, ...tools.map(() => '(toolUse)')]
    const reply = soFar.reply + texts.join('')
    soFar = { ...soFar, words, reply, messages: soFar.messages + 1 }
    if (stop !== 'call') {
      if (!texts.join('').trim()) return [found, 'empty_reply']
      const turns = [...staged.turns, soFar]
      const { first, copied } = staged
      return [{ turns, first, last: [key, soFar.reply], copied }, `${turns.length}`]
    }
    const calls = issue(asked, number, step)
    if (tools.includes('delete_order')) {
      const until = Math.floor(wall / 1000) + WAITING_SECONDS
      const rest = steps.slice(number + 1)
      return [{ ...found, waiting: { after, key, soFar, calls, rest, until, mark: '' } }, 'waiting']
    }
    soFar = withResults(soFar, calls)
  }
  throw new Error('a script without an end')
}

/** A store with revisions, which shows the machine what is loaded and saved. */
class Store extends InProcess {
  readonly revisions = new Map<string, number>()
  readonly machine: Machine

  constructor(settings: Settings, machine: Machine) {
    super(settings)
    this.machine = machine
  }

  override async load(id: string): Promise<Stored | null> {
    await null
    const loading = super.load(id) // from here on others may save
    this.machine.loaded(OPERATION.getStore()!, id, this.entries.peek(id))
    const revision = `${this.revisions.get(id)}`
    const stored = await loading
    return stored && { revision, snapshot: stored.snapshot }
  }

  override async save(
    id: string,
    snapshot: string,
    expected: string | null,
    saved: () => void,
  ): Promise<void> {
    const operation = OPERATION.getStore()!
    const [kind, at] = operation.fault
    operation.saves++
    const revision = this.revisions.get(id) ?? 0
    if (this.entries.has(id) && expected !== `${revision}`) {
      operation.conflicts++
      throw new AgentError('session_conflict')
    }
    const isHit = operation.saves === at
    const isClaim = !operation.isClaimed && approvedOf(operation).length > 0
    if (isHit && kind === 'request') throw new AgentError('store_unavailable')
    this.revisions.set(id, revision + 1)
    const saving = super.save(id, snapshot, expected, saved)
    this.machine.saved(operation, id, JSON.parse(snapshot))
    await saving
    // A claim of unknown outcome is taken up by its retry, which tests/conformance tries.
    if (isHit && !isClaim) throw new AgentError('store_unavailable')
  }

  override async end(id: string): Promise<void> {
    await super.end(id)
    this.machine.model.delete(id)
  }
}

/** What the model does in a step; the calls of the step replace the call here. */
function answerOf(step: Step): Answer {
  return step.map((item) => {
    if (item instanceof Error) return fail(item)
    if (typeof item === 'string') return reply(item)
    const [reason] = item
    return reason === 'call' ? toolCall('any', '') : stop(reason as 'length' | 'filter' | 'cut')
  })
}

/** A model that plays what the operation that runs has planned. */
function scripted(machine: Machine): ScriptedModel {
  const model: any = new ScriptedModel()
  const stream = model[METHOD].bind(model)
  model.script = {
    shift: () => {
      const operation = OPERATION.getStore()!
      const step = planOf(operation)[operation.played++]
      return step && answerOf(step)
    },
  }
  model.requests = {
    push: (messages: any) => {
      const reader = new ScriptedModel()
      reader.requests.push(messages)
      machine.told(OPERATION.getStore()!, reader.conversations[0]!.join(' '))
    },
  }
  model[METHOD] = async function* (...given: unknown[]) {
    const operation = OPERATION.getStore()!
    for await (const event of stream(...given)) {
      const number = operation.played - 1
      const calls = number < 0 ? [] : issue(operation, number, planOf(operation)[number]!)
      yield* calls.length > 0 ? withCalls(event, calls) : [event]
    }
  }
  return model
}

class Machine {
  readonly runtimes: Runtime[]
  readonly store: Store
  model = new Map<string, History>()
  readonly latest = new Map<string, Operation>()
  /** By the id of a call. */
  readonly claims = new Map<string, Operation>()
  readonly runs = new Map<string, number>()
  readonly problems: unknown[][] = []
  count = 0

  constructor() {
    const given = { sessionCapacity: CAPACITY, sessionIdleSeconds: IDLE_SECONDS, sessionQueue: 20 }
    const limits = { historyMessages: HISTORY, waitingSeconds: WAITING_SECONDS }
    const settings = createSettings({ ...given, ...limits }, SETTINGS)
    this.store = new Store(settings, this)
    this.runtimes = [0, 1].map(() => {
      const runtime = new Runtime(settings, agent, app.load, CAPABILITIES(settings))
      Object.assign(runtime.sessions, { store: this.store })
      return Object.assign(runtime, { model: scripted(this) })
    })
    hooks.ran = (id) => this.ran(id)
  }

  /** Note a problem; frameworks would swallow an exception. */
  check(isSo: boolean, ...what: unknown[]): void {
    if (!isSo) this.problems.push(what)
  }

  loaded(operation: Operation, session: string, stored: Stored | undefined): void {
    if (!stored) this.model.delete(session) // it was evicted, or never there
    if (operation.saves > 0) return
    operation.found.set(session, this.model.get(session) ?? EMPTY)
    if (this.model.has(session)) operation.existing.add(session)
  }

  /** The conversation that a model is told begins with what the session held. */
  told(operation: Operation, text: string): void {
    if (operation.played > 0 || operation.reasons) return
    const found = operation.found.get(operation.session)!
    const { replaces } = operation
    const after = replaces === null ? found.turns.length : (replaces || found.turns.length) - 1
    const prompt = operation.prompt || found.turns[after]!.words[0]!
    const staged = before(found, after)
    const words = staged.turns.slice(staged.first).flatMap((past) => past.words)
    this.check(text === [...words, prompt].join(' '), 'told', text, words, prompt)
  }

  /** What was saved is what the model says, on top of what the operation had found. */
  saved(operation: Operation, session: string, snapshot: any): void {
    const { isClaimed, reasons, prompt } = operation
    const found = operation.found.get(session)!
    let [after, outcome] = [found, '']
    if (this.model.has(session) && !isClaimed) {
      this.check(this.model.get(session) === found, 'lost update', operation)
    }
    if (reasons && [...reasons.values()].includes(null) && !isClaimed) {
      operation.isClaimed = true
      after = { ...found, waiting: undefined }
      for (const id of approvedOf(operation)) {
        this.check(!this.claims.has(id), 'claimed twice', operation)
        this.claims.set(id, operation)
      }
    } else if (prompt === 'fork') {
      const { turns, first } = operation.found.get(operation.session)!
      this.check(!operation.existing.has(session), 'a fork over a session', operation)
      const copied = turns.slice(0, operation.replaces!)
      after = { turns: copied, first, last: [null, ''], copied: copied.length }
    } else if (prompt === 'undo') {
      const turns = found.turns.slice(0, -1)
      const copied = Math.min(found.copied, turns.length)
      after = { turns, first: found.first, last: [null, ''], copied }
    } else {
      ;[after, outcome] = expect(operation)
      this.check(after !== found, 'saved', operation, outcome)
      if (after.waiting && outcome === 'waiting') {
        after.waiting.mark = snapshot.app_data.pending.calls[0].id.split('.')[1]
      }
    }
    this.model.set(session, after)
    try {
      checkStored(snapshot, after)
    } catch (error) {
      this.problems.push([error, operation, after, snapshot])
    }
  }

  /** A tool runs: for the first time, in its own turn, and approved if it asks for that. */
  ran(id: string): void {
    const operation = OPERATION.getStore()!
    const { waiting } = operation.found.get(operation.session)!
    const runs = (this.runs.get(id) ?? 0) + 1
    this.runs.set(id, runs)
    this.check(currentTurn() === operation.turn, 'another turn', operation)
    this.check(runs === 1, 'ran twice', id, operation)
    if (gatedOf(waiting?.calls).includes(id)) {
      this.check(this.claims.get(id) === operation, 'ran without approval', id, operation)
    }
    const issued = planOf(operation).flatMap((step, number) => issue(operation, number, step))
    this.check(!gatedOf(issued).includes(id), 'ran without being asked for', id, operation)
  }

  /** Run a turn; what it reports is what the model says of what it found. */
  take(operation: Operation): Promise<void> {
    return OPERATION.run(operation, async () => {
      const { session: sessionId, actor, key, prompt, replaces, reasons, writer } = operation
      const stop = new AbortController()
      const emit = async () => {
        if (operation.cancel === 'mid') stop.abort(new Error('cancelled'))
      }
      const given = { sessionId, actor, key }
      const request = reasons
        ? new Answers(given, reasons)
        : new TurnRequest({ ...given, prompt, replaces })
      const turn = new Turn(request, emit)
      operation.turn = turn
      const running = this.runtimes[writer]!.start(turn, { signal: stop.signal })
      if (operation.cancel === 'at once') stop.abort(new Error('cancelled'))
      try {
        const { marks, turn: number, waiting } = await running
        operation.outcome = waiting.length > 0 ? 'waiting' : `${number}`
        const drops = !reasons && waitingOf(operation.found.get(sessionId)!) !== undefined
        if (turn.outcome !== 'replayed') {
          this.check(marks.includes('dropped') === drops, 'dropped', operation)
        }
      } catch (error) {
        operation.outcome = error instanceof AgentError ? error.type : 'cancelled'
        if (stop.signal.aborted) operation.outcome = 'cancelled'
      }
      this.compare(operation)
    })
  }

  compare(operation: Operation): void {
    const { outcome, fault, saves } = operation
    if (outcome === 'cancelled') this.check(operation.cancel !== '', 'cancelled', operation)
    else if (outcome === 'session_conflict') this.check(operation.conflicts > 0, outcome, operation)
    else if (outcome === 'store_unavailable') {
      this.check(fault[1] > 0 && fault[1] <= saves, outcome, operation)
    } else {
      const [, expected] = expect(operation)
      this.check(outcome === expected, 'outcome', operation, expected)
      for (const id of operation.isClaimed ? approvedOf(operation) : []) {
        this.check(this.runs.get(id) === 1, 'not run', operation, id)
      }
    }
  }

  async run(...operations: Operation[]): Promise<void> {
    await Promise.all(operations.map((operation) => this.take(operation)))
    this.forget()
  }

  forget(): void {
    const kept = new Set(this.store.entries.keys())
    this.model = new Map([...this.model].filter(([session]) => kept.has(session)))
  }

  /** An operation, with a key of its own. */
  asks(session: string, what: Partial<Operation>): Operation {
    const id = ++this.count
    const none = { replaces: null, reasons: null, actor: null, writer: 0, cancel: '' as const }
    const prompts = { steps: [], prompt: `prompt${id}`, key: `k${id}`, fault: ['', 0] as Fault }
    const counts = { played: 0, saves: 0, conflicts: 0, isClaimed: false, outcome: '' }
    const seen = { found: new Map<string, History>(), existing: new Set<string>() }
    return { id, session, ...none, ...prompts, ...counts, ...seen, ...what }
  }

  turn(session: string, what: Partial<Operation>): Operation {
    const asked = this.asks(session, what)
    if (!this.model.has(session)) asked.actor = null
    this.latest.set(session, asked)
    return asked
  }

  /** Answers to the calls that wait, approved or denied in turn. */
  answers(session: string, verdicts: boolean[], what: Partial<Operation>): Operation {
    const waiting = this.model.get(session)?.waiting
    const given = (waiting ? idsOf(waiting) : ['none.0']).map((id, n): [string, string | null] => {
      return [id, verdicts[n] ? null : 'no']
    })
    const asked = this.asks(session, { prompt: '', reasons: new Map(given), ...what })
    if (verdicts[2]) this.latest.set(session, asked)
    else asked.key = null
    if (!this.model.has(session)) asked.actor = null
    return asked
  }

  /** A session like this: which one depends on what is given; the first is made by a turn. */
  async oneOf(
    session: string,
    are: (history: History) => boolean,
    making: Step[] = GOOD[0]!,
  ): Promise<string> {
    if (![...this.model.values()].some(are)) await this.run(this.turn(session, { steps: making }))
    const found = [...this.model].flatMap(([name, history]) => (are(history) ? [name] : []))
    return found.toSorted()[session.charCodeAt(0) % found.length] ?? session
  }

  async replace(given: string, asked: number, repeats: boolean, what: Partial<Operation>) {
    const session = await this.oneOf(given, hasTurns)
    const { turns, first } = this.model.get(session) ?? EMPTY
    const held = turns.length - first || 1
    // 0 is the last, and 5 may be one that is not there.
    const replaces = asked > 0 && asked < 5 ? first + 1 + (asked % held) : asked
    const prompt = repeats && replaces ? { prompt: '' } : {}
    await this.run(this.turn(session, { ...what, ...prompt, replaces }))
  }

  async again(session: string, writer: number): Promise<void> {
    const before = this.latest.get(session)
    if (!before) return
    const { prompt, replaces, key } = before
    const reasons = before.reasons && new Map(before.reasons)
    await this.run(this.asks(session, { prompt, replaces, key, reasons, writer, steps: [['ok']] }))
  }

  async answer(given: string, verdicts: boolean[], wrong: string, what: Partial<Operation>) {
    const gated = GATED[given.charCodeAt(0) % 3]
    const asked = this.answers(await this.oneOf(given, waits, gated), verdicts, what)
    if (wrong === 'fewer') asked.reasons!.delete([...asked.reasons!.keys()][0]!)
    if (wrong === 'more') asked.reasons!.set('none', null)
    await this.run(asked)
  }

  async atOnce(given: string, all: AtOnce[]): Promise<void> {
    const session = await this.oneOf(given, waits, GATED[all.length % 3])
    const operations = all.map(({ kind, verdicts, steps, ...what }) => {
      if (kind === 'answer') return this.answers(session, verdicts, what)
      const where = kind === 'elsewhere' ? SESSIONS[(SESSIONS.indexOf(session) + 1) % 4]! : session
      return this.turn(where, { ...what, steps, replaces: kind === 'replace' ? 1 : null })
    })
    await this.run(...operations)
  }

  /** What work on the sessions comes to: what it returns, or the type of its error. */
  async change(operation: Operation, work: (sessions: Sessions) => Promise<unknown>) {
    const { sessions } = this.runtimes[operation.writer]!
    operation.outcome = await OPERATION.run(operation, () => work(sessions)).then(
      String,
      (error) => {
        return error instanceof AgentError ? error.type : String(error)
      },
    )
    this.forget()
  }

  async fork(given: string, fork: string, turns: number, writer: number): Promise<void> {
    const sessionId = await this.oneOf(given, hasTurns)
    const operation = this.asks(sessionId, { prompt: 'fork', replaces: turns, writer })
    const [exists, held] = [this.model.has(fork), this.model.get(sessionId) ?? EMPTY]
    await this.change(operation, (sessions) => {
      return sessions.fork(
        { sessionId, actor: null, key: null, fork, turns },
        new AbortController().signal,
      )
    })
    const isThere = turns > held.first && turns <= held.turns.length
    const expected = isThere ? (exists ? 'session_conflict' : 'undefined') : 'invalid_request'
    this.check(operation.outcome === expected, 'fork', operation, expected)
  }

  async undo(session: string, writer: number): Promise<void> {
    const operation = this.asks(session, { prompt: 'undo', writer })
    const { turns, first } = this.model.get(session) ?? EMPTY
    await this.change(operation, (sessions) => {
      const { signal } = new AbortController()
      return sessions.open(session, null, signal, (opened) => opened.takeBack())
    })
    const expected = first < turns.length ? `${turns.length}` : 'invalid_request'
    this.check(operation.outcome === expected, 'undo', operation, expected)
  }

  async expire(seconds: number): Promise<void> {
    now += seconds * 1000
    await new Promise((resolve) => setTimeout(resolve, 2)) // the cache looks once in a millisecond
    this.forget()
    if (seconds > IDLE_SECONDS) assert.equal(this.model.size, 0)
  }

  /** Sessions are what the model says. */
  verify(): void {
    assert.deepEqual(this.problems, [])
    assert.ok(this.store.entries.size <= CAPACITY)
    for (const { sessions } of this.runtimes) assert.equal(sessions.queues.size, 0)
    assert.deepEqual(new Set(this.store.entries.keys()), new Set(this.model.keys()))
    for (const [session, history] of this.model) {
      checkStored(JSON.parse(this.store.entries.peek(session)!.snapshot), history)
    }
  }
}

function hasTurns({ turns }: History): boolean {
  return turns.length > 0
}

function waits({ waiting }: History): boolean {
  return waiting !== undefined
}

/** A snapshot has the held turns, word by word and from where they begin, and what waits. */
function checkStored({ app_data: kept, data }: any, history: History): void {
  const { turns, first, last, waiting } = history
  const held = turns.slice(first)
  assert.deepEqual([kept.turn, kept.key, kept.reply], [turns.length, ...last])
  const starts: number[] = kept.turns.map(({ at }: { at: number }) => at)
  const words = starts.map((at, n) => wordsOf(data.messages.slice(at, starts[n + 1])))
  assert.deepEqual(
    words,
    held.map((past) => past.words),
  )
  assert.deepEqual(
    kept.turns.map(({ key }: { key: string }) => key),
    held.map(({ key }) => key),
  )
  assert.deepEqual(starts.slice(0, 1), held.length > 0 ? [0] : [])
  if (held.length === 0) assert.deepEqual(data.messages, [])
  else if ('state' in data) assert.equal(data.state.seen, turns.at(-1)!.seen)
  const { pending } = kept
  assert.equal(pending === undefined, waiting === undefined)
  if (!waiting) return
  const asked = pending.calls.map(({ id }: { id: string }) => id)
  assert.deepEqual(asked, idsOf(waiting))
  const { key, words: soFar, reply } = waiting.soFar
  const told = [pending.turn, pending.prompt, pending.reply, pending.until]
  assert.deepEqual(told, [waiting.after + 1, soFar[0], reply, waiting.until])
  assert.deepEqual([pending.key, pending.prompt_key], [waiting.key, key])
}

/** The words of a turn: a prompt of the user, then the model's, and each call has its result. */
function wordsOf(messages: { role: string; content: string | object[] }[]): string[] {
  const words: string[] = []
  const open: string[] = []
  for (const { role, content } of messages) {
    for (const block of typeof content === 'string' ? [{ text: content }] : content) {
      const [word, id] = read(block)
      words.push(word)
      if (word === '(toolUse)') open.push(id)
      else if (word === '(toolResult)') open.splice(open.indexOf(id), 1)
      else assert.deepEqual([open, role], [[], words.length === 1 ? 'user' : 'assistant'])
    }
  }
  assert.deepEqual(open, [])
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

type AtOnce = {
  kind: 'turn' | 'replace' | 'answer' | 'elsewhere'
  writer: number
  steps: Step[]
  verdicts: boolean[]
  cancel: Cancel
}
type Rule = (machine: Machine) => Promise<void>

const session = fc.constantFrom(...SESSIONS)
const steps = fc.constantFrom(...GOOD, ...GOOD, ...BAD)
const writer = fc.nat(1)
const verdicts = fc.array(fc.boolean(), { minLength: 3, maxLength: 3 })
const cancel = fc.constantFrom<Cancel>('', '', '', '', 'at once', 'mid')
const actor = fc.constantFrom(null, null, null, null, 'other')
const wrong = fc.constantFrom('', '', '', 'fewer', 'more')
const FAULTS: Fault[] = [
  ['request', 1],
  ['reply', 1],
  ['request', 2],
  ['reply', 2],
]
const fault = fc.constantFrom<Fault>(...Array<Fault>(8).fill(['', 0]), ...FAULTS)
const anyTurn = fc.record({ writer, steps, cancel, fault, actor })
const anyAnswer = fc.record({ writer, cancel, fault, actor })
const kind = fc.constantFrom<AtOnce['kind']>('turn', 'replace', 'answer', 'elsewhere')
const several = fc.array(fc.record<AtOnce>({ kind, writer, steps, verdicts, cancel }), {
  minLength: 2,
  maxLength: 5,
})

/** A step that shows its name and its arguments, when the schedule it is in fails. */
function rule<T>(name: string, given: fc.Arbitrary<T>, act: (m: Machine, it: T) => Promise<void>) {
  return given.map((it): Rule => {
    const step: Rule = (machine) => act(machine, it)
    return Object.assign(step, { [fc.toStringMethod]: () => `${name}(${fc.stringify(it)})` })
  })
}

const replaced = fc.tuple(session, fc.nat(5), fc.boolean(), fc.record({ writer, steps }))
const answered = fc.tuple(session, verdicts, wrong, anyAnswer)
const forked = fc.tuple(session, session, fc.integer({ min: 1, max: 5 }), writer)
const outwaited = fc.constantFrom(WAITING_SECONDS - 1, WAITING_SECONDS)
const turn = rule('turn', fc.tuple(session, anyTurn), (m, [s, it]) => m.run(m.turn(s, it)))
const answer = rule('answer', answered, (m, it) => m.answer(...it))
const rules = fc.oneof(
  turn,
  turn,
  answer,
  answer,
  rule('replace', replaced, (m, it) => m.replace(...it)),
  rule('again', fc.tuple(session, writer), (m, it) => m.again(...it)),
  rule('at once', fc.tuple(session, several), (m, it) => m.atOnce(...it)),
  rule('fork', forked, (m, it) => m.fork(...it)),
  rule('undo', fc.tuple(session, writer), (m, it) => m.undo(...it)),
  rule('expire', fc.constantFrom(60, 101), (m, it) => m.expire(it)),
  rule('outwait', outwaited, async (_, seconds) => void (wall += seconds * 1000)),
)

const { SCHEDULES = '50', SEED, FIRST_FAILURE } = process.env
const made = await app.makeCapabilities(createSettings({}, SETTINGS))
const CAPABILITIES = (settings: Settings) =>
  made.map(({ constructor }) => new (constructor as any)(settings, [], app.load))
const schedules = fc.asyncProperty(
  fc.array(rules, { minLength: 4, maxLength: 20, size: 'max' }),
  async (all) => {
    const machine = new Machine()
    for (const step of all) {
      await step(machine)
      machine.verify()
    }
  },
)
const seed = SEED ? { seed: Number(SEED) } : {}
const options = { numRuns: Number(SCHEDULES), endOnFailure: FIRST_FAILURE !== undefined, ...seed }
await fc.assert(schedules, options).catch((error) => {
  console.log(`${error.message}\n${error.cause?.message}`)
  console.log('FAILED typescript_machine.ts::schedules')
  process.exit(3)
})
console.log(`${SCHEDULES} schedules`)
process.exit() // whatever a framework still waits for
