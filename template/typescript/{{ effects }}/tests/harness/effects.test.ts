// Effects happen once: after the commit, or in the turn with a recorded result.

import assert from 'node:assert/strict'
import { beforeEach, describe, test, type TestContext } from 'node:test'

import { z } from 'zod'

import { type App, Capability } from '../../src/harness/capability.ts'
import { AgentError } from '../../src/harness/contract.ts'
import { TurnCalls } from '../../src/harness/effects/calls.ts'
import { Effects } from '../../src/harness/effects/capability.ts'
import { effects } from '../../src/harness/effects/commands.ts'
import { EffectFunction, FUNCTIONS, register } from '../../src/harness/effects/functions.ts'
import { Rejected } from '../../src/harness/effects/index.ts'
import { Outbox, type Outcome } from '../../src/harness/effects/outbox.ts'
import type { Call } from '../../src/harness/effects/records.ts'
import type { EffectSettings } from '../../src/harness/effects/settings.ts'
import type { SessionStore } from '../../src/harness/sessions/session_store.ts'
import type { Stage } from '../../src/harness/sessions/sessions.ts'
import { type AgentResponse, captureLog, Client, run, SESSION, until } from './client.ts'
import { Clock } from './clock.ts'
import { Receiver } from './receiver.ts'
import { type Answer, fail, reply, toolCall, wait } from './script.ts'
import { Shop } from './shop.ts'

const PAY = toolCall('pay', { order: '7' })
const PAY_AGAIN = toolCall('pay', { order: '7' }, 'other')
const PAY_OTHER = toolCall('pay', { order: '8' })
const SEND = toolCall('send', { to: 'ada' })
const TICKET = toolCall('ticket', { title: 'Lamp' }, 'ticket')
const SCHEDULED: Partial<Call> = {
  key: 'k',
  kind: 'after_commit',
  tool: 'send',
  arguments: { to: 'ada' },
  digest: '',
  turn: 1,
  identity: 'turn 1',
  status: 'scheduled',
  at: 0,
}
const BROKEN = fail(new Error('broken'))
const CLAIM_SECONDS = 30

let receiver: Receiver

beforeEach(() => {
  receiver = new Receiver()
})

/** Return a process of the agent; `store` has the sessions of another process. */
function makeClient(script: Answer[], values: object = {}, store?: SessionStore): Client {
  FUNCTIONS.clear()
  return new Client(script, values, (settings, load) => {
    const shop = new Shop(settings, [], load)
    const shared = new Capability(settings, [], load)
    shop.receiver = receiver
    if (store) shared.sessionStore = () => store
    return [shared, new Effects(settings, [], load), shop]
  })
}

/** Return a new process with the sessions of a process that was killed. */
function restart({ runtime }: Client, ...script: Answer[]): Client {
  const client = makeClient(script, {}, runtime.sessions.store)
  outboxOf(client).sessions = client.runtime.sessions
  return client
}

function outboxOf({ runtime }: Client): Outbox {
  return runtime.capabilities.find((capability) => capability instanceof Effects)!.outbox
}

/** Show processes a later time, at which the claims of ended processes have ended. */
function endClaims(context: TestContext): void {
  const begin = Date.now()
  context.mock.method(Date, 'now', () => begin + CLAIM_SECONDS * 1000)
}

/** Return a store that rejects a save after another save, as the stores of several processes do. */
function withRevisions(store: SessionStore): SessionStore {
  let revision = 0
  const load: SessionStore['load'] = async (id) => {
    const stored = await store.load(id)
    return stored && { ...stored, revision: String(revision) }
  }
  const save: SessionStore['save'] = async (id, snapshot, expected, ...rest) => {
    if (expected !== null && expected !== String(revision)) throw new AgentError('session_conflict')
    revision++
    await store.save(id, snapshot, null, ...rest)
    return String(revision)
  }
  return Object.assign(Object.create(store), { load, save })
}

/** Run `effects` in another process. */
async function runCommand(client: Client, ...args: string[]): Promise<void> {
  // Only sessions in a store are in another process.
  const store = new Proxy(client.runtime.sessions.store, { getPrototypeOf: () => null })
  const { capabilities, load } = makeClient([], {}, store).runtime
  const app: Partial<App<EffectSettings>> = { load, loadCapabilities: async () => capabilities }
  await effects(args, app as App<EffectSettings>)
}

/** Do the work of the outbox until a pause; return the pause. */
async function runSteps(client: Client): Promise<number | null> {
  let pause: number | null = 0
  while (pause === 0) pause = await outboxOf(client).step('s')
  return pause
}

/** Wait until all effects have run and their outcomes are saved. */
async function finish(client: Client): Promise<void> {
  const { running, workers } = outboxOf(client)
  while (running.size + workers.size > 0) {
    await Promise.allSettled([...running.values(), ...workers.values()])
  }
}

function say(client: Client, key = '', signal?: AbortSignal): Promise<AgentResponse> {
  return client.say('Do it.', { session: 's', ...(key && { key }), ...(signal && { signal }) })
}

/** Cancel a turn while its first effect is running. */
async function cancel(client: Client): Promise<void> {
  const caller = new AbortController()
  const response = say(client, 'k1', caller.signal).catch(() => {})
  await until(() => receiver.begun === 1)
  caller.abort()
  await response
}

/** Return the stored snapshot as text. */
async function stored({ runtime }: Client): Promise<string> {
  const entry = await runtime.sessions.store.load('s')
  return entry?.snapshot ?? ''
}

/** Return the messages of the committed turns as text. */
async function history(client: Client): Promise<string> {
  return JSON.stringify(await client.messages('s'))
}

async function callsOf(client: Client, session = 's'): Promise<Call[]> {
  return client.runtime.sessions.openForWork(session, async ({ records }) => {
    const { calls = [] } = (records.effects ?? {}) as { calls?: Call[] }
    return calls
  })
}

/** Simulate the end of a process right after each commit. */
function stopWatching(context: TestContext): () => void {
  const { mock } = context.mock.method(Outbox.prototype, 'watch', () => {})
  return () => mock.restore()
}

describe('a scheduled call', () => {
  test('runs after the commit, and the next turn shows its result', async () => {
    const gate = Promise.withResolvers<void>()
    receiver.gate = gate.promise
    const client = makeClient([SEND, reply('It will be sent.'), reply('It was sent.')])
    assert.equal((await say(client)).turn, 1)
    assert.match(await stored(client), /Scheduled/)
    await until(() => receiver.begun === 1)
    const outcomes = outboxOf(client).outcomesOf('s')
    gate.resolve()
    await finish(client)
    assert.equal(receiver.count('send'), 1)
    assert.notEqual(outboxOf(client).outcomesOf('s'), outcomes) // it forgets saved outcomes
    const { text } = await client.stream('Was it sent?', { session: 's' })
    assert.match(text, /event: data\ndata: \{"name":"effect"/)
    assert.match(text, /"status":"done","result":"send 1"/)
    assert.match(await stored(client), /Done after the turn was saved: send 1/)
    assert.doesNotMatch(await stored(client), /Scheduled|"calls"/)
    await say(client)
    await finish(client)
    assert.equal(receiver.count('send'), 1)
  })

  test('is in the index again when its turn waited for an approval', async (context) => {
    stopWatching(context)
    const client = makeClient([reply('Sent.')])
    const outbox = outboxOf(client)
    const added: string[] = []
    outbox.index = { add: async (id) => void added.push(id), remove: async () => {} }
    const begin = outbox.begin.bind(outbox)
    context.mock.method(outbox, 'begin', (stage: Stage) => {
      stage.turn.kept.effects = { scheduled: [SCHEDULED], used: [] }
      begin(stage)
    })
    assert.equal((await say(client)).turn, 1)
    assert.deepEqual(added, ['s'])
    assert.deepEqual(receiver.calls, [])
  })

  test('of a failed turn does not run', async () => {
    const client = makeClient([SEND, BROKEN])
    assert.equal((await say(client)).error, 'model_failed')
    await finish(client)
    assert.deepEqual(receiver.calls, [])
  })

  test('runs in order, and is retried with the same key', async (context) => {
    receiver.errors.push(new Error('down'), new Error('down'))
    const clock = new Clock(context)
    const client = makeClient([[SEND, TICKET], reply('Done.')])
    await say(client)
    await until(() => {
      clock.advance(1)
      return receiver.calls.length === 4
    })
    await finish(client)
    const tools = receiver.calls.map(([tool]) => tool)
    assert.deepEqual(tools, ['send', 'send', 'send', 'ticket'])
    assert.equal(new Set(receiver.calls.map(([, key]) => key)).size, 2)
  })

  test('is retried when its function rejects without an error', async (context) => {
    receiver.errors.push(undefined)
    const clock = new Clock(context)
    const client = makeClient([SEND, reply('Done.')])
    await say(client)
    await until(() => {
      clock.advance(1)
      return receiver.calls.length === 2
    })
    await finish(client)
    const [call] = await callsOf(client)
    assert.equal(call?.status, 'done')
  })

  const failures: [Error, string][] = [
    [new Rejected('No such address.'), 'No such address.'],
    [new Rejected('💡'.repeat(1001)), `${'💡'.repeat(1000)}"`],
    [new TypeError('secret'), 'TypeError'],
  ]
  for (const [error, reason] of failures) {
    const name = `${error.name} of ${error.message.length} characters`
    test(`fails finally with ${name}, and the model gets the reason`, async () => {
      receiver.errors.push(error)
      const client = makeClient([SEND], { effectRetrySeconds: 0 })
      await say(client)
      await finish(client)
      await say(client)
      const text = 'This failed after the turn was saved, and is not retried: '
      assert.ok((await stored(client)).includes(text + reason))
      assert.equal(receiver.count('send'), 1)
    })
  }

  test('is continued by another process when the first has ended', async (context) => {
    const watchAgain = stopWatching(context)
    const client = makeClient([SEND])
    await say(client)
    watchAgain()
    const other = restart(client)
    endClaims(context)
    await say(other)
    await finish(other)
    assert.equal(receiver.count('send'), 1)
  })

  test('is left to its process when that process renews its claim', async (context) => {
    stopWatching(context)
    const client = makeClient([SEND])
    await say(client)
    const other = outboxOf(restart(client))
    endClaims(context)
    const save = other.save.bind(other)
    context.mock.method(other, 'save', async (id: string) => {
      assert.equal(await outboxOf(client).step(id), 0) // renews the claim
      await save(id)
    })
    assert.equal(await other.step('s'), 0)
    assert.ok(await other.step('s'))
    assert.deepEqual(receiver.calls, [])
  })

  test('is left to a command that runs it', async (context) => {
    stopWatching(context)
    context.mock.method(console, 'log', () => {})
    const client = makeClient([SEND])
    await say(client)
    await outboxOf(client).close(0) // ends the claim
    const gate = Promise.withResolvers<void>()
    receiver.gate = gate.promise
    const command = runCommand(client, 'run', 's')
    await until(() => receiver.begun === 1)
    const pause = await outboxOf(restart(client)).step('s')
    gate.resolve()
    await command
    assert.ok(pause)
    assert.equal(receiver.count('send'), 1)
  })

  test('is done in the store before the next call waits', async (context) => {
    stopWatching(context)
    const client = makeClient([[SEND, TICKET], reply('ok')])
    await say(client)
    assert.equal(await outboxOf(client).step('s'), 0)
    receiver.errors.push(new Error('down'))
    assert.ok(await outboxOf(client).step('s'))
    const calls = await callsOf(client)
    assert.deepEqual(
      calls.map(({ status }) => status),
      ['done', 'scheduled'],
    )
  })

  test('is retried from its first try, also by another process', async (context) => {
    stopWatching(context)
    context.mock.method(console, 'log', () => {})
    const begin = Date.now()
    let seconds = 0
    context.mock.method(Date, 'now', () => begin + seconds * 1000)
    receiver.errors.push(...Array.from({ length: 5 }, () => new Error('down')))
    const client = makeClient([SEND, reply('ok')])
    await say(client)
    const other = restart(client)
    seconds = 86_400
    assert.ok(await runSteps(client))
    seconds = 88_000
    assert.ok(await runSteps(other))
    seconds = 90_001
    assert.equal(await runSteps(other), null)
    const [call] = await callsOf(client)
    assert.equal(call?.status, 'failed')

    // A person begins the time again.
    await runCommand(client, 'settle', call.key, 'retry')
    assert.ok(await runSteps(other))
    seconds = 93_602
    assert.equal(await runSteps(client), null)
    assert.equal(receiver.count('send'), 5)
  })

  const lateOutcomes: Outcome[] = [
    { status: 'scheduled', tried: 1 },
    { status: 'removed', owner: 'other' },
  ]
  for (const outcome of lateOutcomes) {
    test(`stays failed when the late outcome is ${outcome.status}`, async () => {
      receiver.errors.push(new Rejected('No such address.'))
      const client = makeClient([SEND])
      await say(client)
      await finish(client)
      const [, key = ''] = receiver.calls[0]!
      outboxOf(client).outcomesOf('s').set(key, outcome)
      await outboxOf(client).save('s')
      const [call] = await callsOf(client)
      assert.equal(call?.status, 'failed')
    })
  }

  test('is left to the process that has claimed it', async (context) => {
    stopWatching(context)
    const client = makeClient([SEND])
    await say(client)
    const other = restart(client)
    await say(other)
    assert.ok(((await outboxOf(other).step('s')) ?? 0) > 0)
    assert.deepEqual(receiver.calls, [])
  })

  test('is not in a fork, and not in a replaced turn', async (context) => {
    const watchAgain = stopWatching(context)
    const client = makeClient([SEND])
    await say(client)
    await client.post({ fork: 'copy', at_turn: 1 }, { [SESSION]: 's' })
    await client.post({ prompt: 'Do not.', replace_turn: 1 }, { [SESSION]: 's' })
    watchAgain()
    for (const session of ['s', 'copy']) outboxOf(client).watch(session)
    await finish(client)
    assert.deepEqual(receiver.calls, [])
  })

  test('waits for its function', async (context) => {
    stopWatching(context)
    const client = makeClient([SEND])
    await say(client)
    const send = FUNCTIONS.get('send')!
    FUNCTIONS.delete('send')
    assert.ok(await outboxOf(client).step('s'))
    const inputSchema = z.object({ address: z.string() })
    const changed = { name: 'send', kind: 'after_commit', schema: inputSchema } as const
    register({ ...changed, run: () => 'sent' })
    assert.ok(await outboxOf(client).step('s'))
    const calls = await callsOf(client)
    assert.deepEqual(
      calls.map(({ status }) => status),
      ['scheduled'],
    )
    FUNCTIONS.set('send', send)
    assert.equal(await outboxOf(client).step('s'), 0)
    assert.equal(receiver.count('send'), 1)
  })

  test('is finished at the end of the process', async () => {
    const client = makeClient([SEND])
    await say(client)
    await outboxOf(client).close(30)
    assert.equal(receiver.count('send'), 1)
    const [call] = await callsOf(client)
    assert.equal(call?.status, 'done')
    assert.deepEqual(call.arguments, {})
  })
})

describe('a call in the turn', () => {
  test('gets its recorded result when the turn is repeated', async () => {
    const client = makeClient([PAY, BROKEN, PAY, reply('Paid.')])
    assert.equal((await say(client, 'k')).error, 'model_failed')
    assert.equal((await say(client, 'k')).turn, 1)
    assert.equal(receiver.count('pay'), 1)
    assert.match(await stored(client), /pay 1/)
  })

  test('adds two saves to its turn', async (context) => {
    const client = makeClient([reply('ok'), PAY, reply('ok')])
    const { mock } = context.mock.method(client.runtime.sessions.store, 'save')
    await say(client)
    assert.equal(mock.callCount(), 1)
    await say(client)
    assert.equal(mock.callCount(), 4)
  })

  test('has its effect for each call of the model', async () => {
    const client = makeClient([[PAY, PAY_AGAIN], PAY, reply('ok')])
    assert.equal((await say(client)).turn, 1)
    assert.equal(receiver.count('pay'), 3)
    assert.equal(new Set(receiver.calls.map(([, key]) => key)).size, 3)
  })

  test('finishes when the turn is cancelled', async () => {
    const client = makeClient([PAY, [wait(), reply('ok')], PAY, reply('ok')])
    const caller = new AbortController()
    const response = say(client, 'k', caller.signal).catch(() => {})
    await until(() => client.model.conversations.length === 2)
    caller.abort()
    await response
    await finish(client)
    assert.equal((await say(client, 'k')).turn, 1)
    assert.equal(receiver.count('pay'), 1)
  })

  test('does not run after the end of its turn', async (context) => {
    const begin = context.mock.method(Outbox.prototype, 'begin')
    const client = makeClient([reply('ok')])
    await say(client)
    const [stage] = begin.mock.calls[0]!.arguments
    const calls = new TurnCalls(outboxOf(client), stage)
    const late = calls.runOnce(FUNCTIONS.get('pay')!, '{"order":"7"}')
    await assert.rejects(late, /The turn has ended/)
    await finish(client)
    assert.deepEqual(receiver.calls, [])
    assert.deepEqual(await callsOf(client), [])
  })

  for (const error of [new Error('reset'), undefined]) {
    test(`runs again after the error ${error} if it had no effect`, async () => {
      receiver.errors.push(error)
      const client = makeClient([PAY, PAY, reply('ok')])
      const chunks = await client.takeTurn('Do it.', 's')
      const results = chunks.filter((chunk) => typeof chunk === 'object' && 'isError' in chunk)
      assert.deepEqual(
        results.map(({ isError }) => isError),
        [true, false],
      )
      assert.equal(receiver.count('pay'), 2)
    })
  }

  test('is refused after an unknown outcome until a person settles it', async (context) => {
    const log = captureLog(context)
    receiver.errors.push(new Error('reset'))
    receiver.hasReconcile = false
    const client = makeClient([PAY, PAY, reply('ok'), PAY, reply('ok'), PAY, reply('ok')])
    await say(client)
    await say(client)
    assert.equal(receiver.count('pay'), 1)
    const [, key = ''] = receiver.calls[0]!
    assert.ok((await stored(client)).includes(`A person must settle effect ${key}`))
    assert.ok(log.join('\n').includes(`effect ${key} of pay: its outcome is unknown`))
    outboxOf(client).outcomesOf('s').set(key, { status: 'removed' })
    await outboxOf(client).save('s')
    await say(client)
    assert.equal(receiver.count('pay'), 2)
  })

  test('of an ended process is reconciled', async (context) => {
    receiver.gate = new Promise(() => {})
    const client = makeClient([PAY, BROKEN])
    const response = say(client, 'k')
    await until(() => receiver.begun === 1)
    await outboxOf(client).close(0)
    assert.equal((await response).error, 'model_failed')
    receiver.gate = Promise.resolve()
    const other = restart(client, PAY, reply('Later.'), PAY, reply('ok'))
    await say(other, 'k1')
    assert.match(await stored(other), /may still be running/)
    assert.deepEqual(receiver.calls, [])
    endClaims(context)
    await say(other, 'k')
    assert.equal(receiver.count('pay'), 1)
  })

  test('gets the result of its last try when the turn is repeated', async () => {
    receiver.errors.push(new Error('reset'))
    const client = makeClient([PAY, PAY, BROKEN, PAY, reply('Paid.')])
    assert.equal((await say(client, 'k')).error, 'model_failed')
    assert.equal((await say(client, 'k')).turn, 1)
    assert.equal(receiver.count('pay'), 2)
    assert.equal(new Set(receiver.calls.map(([, key]) => key)).size, 1)
    assert.match(await history(client), /pay 2/)
  })

  test('gets a result for each call of the model when the turn is repeated', async () => {
    receiver.errors.push(new Error('reset'))
    const both = [PAY, PAY_AGAIN]
    const client = makeClient([both, PAY, BROKEN, both, reply('Paid.')])
    assert.equal((await say(client, 'k')).error, 'model_failed')
    assert.equal((await say(client, 'k')).turn, 1)
    assert.equal(receiver.count('pay'), 3)
    assert.match(await history(client), /pay 2.*pay 3/)
  })

  test('has its key in each try of the turn, also without other records', async () => {
    receiver.errors.push(new Rejected('Not now.'))
    const client = makeClient([PAY, BROKEN, PAY, reply('ok')])
    assert.equal((await say(client, 'k')).error, 'model_failed')
    assert.equal((await say(client, 'k')).turn, 1)
    assert.equal(new Set(receiver.calls.map(([, key]) => key)).size, 1)
  })

  for (const isPaid of [true, false]) {
    const what = isPaid ? 'had its effect' : 'runs again'
    test(`of an earlier turn that ${what} gives its result to this turn`, async () => {
      receiver.errors.push(new Error('reset'))
      receiver.hasReconcile = false
      const client = makeClient([PAY, BROKEN, PAY, BROKEN, PAY, reply('ok'), PAY, reply('ok')])
      await say(client, 'k1')
      const [, key = ''] = receiver.calls[0]!
      receiver.hasReconcile = true
      if (isPaid) receiver.results.set(key, 'pay 1')
      const count = isPaid ? 1 : 2
      assert.equal((await say(client, 'k2')).error, 'model_failed')
      await finish(client)
      assert.equal((await say(client, 'k2')).turn, 1)
      assert.equal(receiver.count('pay'), count)
      assert.match(await history(client), new RegExp(`pay ${count}`))
      await say(client, 'k3')
      assert.equal(receiver.count('pay'), count + 1)
    })
  }

  test('of a cancelled turn gives its result to the turn that waits for it', async () => {
    const gate = Promise.withResolvers<void>()
    receiver.gate = gate.promise
    const client = makeClient([PAY, PAY, BROKEN, PAY, reply('ok')])
    await cancel(client)
    const next = say(client, 'k2')
    await until(() => outboxOf(client).adopted.size > 0)
    gate.resolve()
    assert.equal((await next).error, 'model_failed')
    assert.equal((await say(client, 'k2')).turn, 1)
    assert.equal(receiver.count('pay'), 1)
  })

  test('of a cancelled turn gives its result to only one of two calls', async () => {
    const gate = Promise.withResolvers<void>()
    receiver.gate = gate.promise
    const client = makeClient([PAY, [PAY, PAY_AGAIN], reply('ok')])
    await cancel(client)
    const next = say(client, 'k2')
    await until(() => outboxOf(client).running.size === 2)
    gate.resolve()
    assert.equal((await next).turn, 1)
    assert.equal(receiver.count('pay'), 2)
  })

  for (const isDone of [true, false]) {
    const what = isDone ? 'has made' : 'is making'
    test(`is not made again by a process with the same turn that ${what} it`, async () => {
      const last = Promise.withResolvers<void>()
      const gate = Promise.withResolvers<void>()
      const store = withRevisions(makeClient([]).runtime.sessions.store)
      const script = [PAY_OTHER, reply('ok'), PAY, [wait(last.promise), reply('ok')]]
      const client = makeClient(script, {}, store)
      await say(client)
      const begin = Promise.withResolvers<void>()
      const other = restart(client, [wait(begin.promise), PAY], BROKEN)
      const second = say(other, 'k')
      await until(() => other.model.conversations.length === 1)
      if (!isDone) receiver.gate = gate.promise
      const first = say(client, 'k')
      await until(() => client.model.conversations.length === (isDone ? 4 : 3))
      await until(() => receiver.begun === 2)
      begin.resolve()
      await until(() => other.model.conversations.length === 2)
      gate.resolve()
      last.resolve()
      assert.equal((await first).turn, 2)
      await second
      assert.equal(receiver.count('pay'), 2)
    })
  }

  test('that another process has started is not changed by a late outcome', async (context) => {
    const client = makeClient([PAY_OTHER, reply('ok'), PAY, BROKEN])
    await say(client)
    const watchAgain = stopWatching(context)
    const { mock } = context.mock.method(client.runtime.sessions.store, 'save', async () => {
      throw new AgentError('store_unavailable')
    })
    await say(client, 'k')
    mock.restore()
    watchAgain()
    assert.equal(receiver.count('pay'), 1)
    const gate = Promise.withResolvers<void>()
    receiver.gate = gate.promise
    const other = restart(client, PAY, BROKEN, PAY, reply('ok'))
    const response = say(other, 'k')
    await until(() => receiver.begun === 2)
    const outbox = outboxOf(client)
    const outcomes = outbox.outcomesOf('s')
    const [[key, removed]] = outcomes as unknown as [[string, Outcome]]
    for (const late of [removed, { status: 'unknown', owner: outbox.id } as const]) {
      outcomes.set(key, late)
      await outbox.save('s')
      const calls = await callsOf(client)
      assert.equal(calls.at(-1)?.status, 'started')
    }
    assert.ok(!outbox.isBusy)
    gate.resolve()
    assert.equal((await response).error, 'model_failed')
    assert.equal((await say(other, 'k')).turn, 2)
    assert.equal(receiver.count('pay'), 2)
  })

  test('that another process finishes gives its result to the next identical call', async () => {
    const gate = Promise.withResolvers<void>()
    receiver.gate = gate.promise
    const client = makeClient([PAY])
    await cancel(client)
    const other = restart(client, PAY, reply('Later.'), PAY, reply('ok'))
    await say(other, 'k2')
    assert.match(await history(other), /may still be running/)
    gate.resolve()
    await finish(client)
    await say(other, 'k3')
    assert.equal(receiver.count('pay'), 1)
    assert.match(await history(other), /pay 1/)
  })

  test('that a person has settled gives its result to the next identical call', async (context) => {
    context.mock.method(console, 'log', () => {})
    receiver.errors.push(new Error('reset'))
    receiver.hasReconcile = false
    const script = [PAY, BROKEN, PAY, PAY_OTHER, BROKEN, PAY, reply('ok'), PAY, reply('ok')]
    const client = makeClient(script, { maxEffects: 1 })
    await say(client)
    const [, key = ''] = receiver.calls[0]!
    await runCommand(client, 'settle', key, 'done', '--result', 'Paid by hand.')
    assert.equal((await say(client, 'k')).error, 'model_failed')
    assert.equal((await say(client, 'k')).turn, 1)
    assert.equal(receiver.count('pay'), 1)
    assert.match(await history(client), /Paid by hand/)
    await say(client)
    assert.equal(receiver.count('pay'), 2)
  })

  test('that a person has dropped is refused once', async (context) => {
    context.mock.method(console, 'log', () => {})
    receiver.errors.push(new Error('reset'))
    receiver.hasReconcile = false
    const client = makeClient([PAY, BROKEN, PAY, reply('ok'), PAY, reply('ok'), PAY, reply('ok')])
    await say(client, 'k')
    const [, key = ''] = receiver.calls[0]!
    await runCommand(client, 'settle', key, 'drop')
    const outbox = outboxOf(client)
    outbox.outcomesOf('s').set(key, { status: 'unknown', owner: outbox.id }) // too late
    await say(client)
    await client.post({ prompt: 'Do it.', replace_turn: 1 }, { [SESSION]: 's' })
    assert.equal(receiver.count('pay'), 1)
    assert.match(await history(client), /A person decided that this must not run/)
    await say(client)
    assert.equal(receiver.count('pay'), 2)
  })

  test('that a person settles during its turn gives its result to that turn', async () => {
    receiver.errors.push(new Error('reset'))
    receiver.hasReconcile = false
    const gate = Promise.withResolvers<void>()
    const client = makeClient([PAY, PAY, [wait(gate.promise), PAY], reply('ok')])
    const response = say(client)
    await until(() => client.model.conversations.length === 3)
    const [, key = ''] = receiver.calls[0]!
    const outcome = { status: 'done', result: 'Paid by hand.', wanted: true } as const
    outboxOf(client).outcomesOf('s').set(key, outcome)
    gate.resolve()
    assert.equal((await response).turn, 1)
    assert.equal(receiver.count('pay'), 1)
    assert.match(await history(client), /Paid by hand/)
  })

  test('is dropped neither by its own turn nor by another process', async () => {
    const script = [PAY, PAY_OTHER, BROKEN, PAY_OTHER, PAY, reply('Paid.')]
    const client = makeClient(script, { maxEffects: 1 })
    assert.equal((await say(client, 'k')).error, 'model_failed')
    const other = makeClient([], { maxEffectBytes: 1 }, client.runtime.sessions.store)
    outboxOf(other).sessions = other.runtime.sessions
    await outboxOf(other).save('s')
    assert.equal((await say(client, 'k')).turn, 1)
    assert.equal(receiver.count('pay'), 1)
    assert.match(await history(client), /pay 1/)
  })

  test('with a large result is recorded without it', async () => {
    receiver.ending = 'x'.repeat(500)
    const script = [PAY, reply('ok'), PAY, BROKEN, PAY, reply('ok')]
    const client = makeClient(script, { maxEffectBytes: 400 })
    await say(client)
    assert.match(await history(client), /pay 1x{500}/)
    const [call] = await callsOf(client)
    assert.equal(call?.result, 'The result was too large to be recorded.')
    assert.equal((await say(client, 'k')).error, 'model_failed')
    assert.equal((await say(client, 'k')).turn, 2)
    assert.equal(receiver.count('pay'), 2)
    assert.match(await history(client), /too large to be recorded/)
  })

  test('is refused at the limits, and old results are dropped', async (context) => {
    stopWatching(context)
    const script = [PAY, reply('ok'), PAY, reply('ok'), [SEND, TICKET, PAY], reply('ok')]
    const client = makeClient(script, { maxEffects: 2 })
    for (let turn = 1; turn <= 3; turn++) await say(client)
    const calls = await callsOf(client)
    const scheduled = calls.filter(({ status }) => status === 'scheduled')
    assert.deepEqual(
      scheduled.map(({ tool }) => tool),
      ['send', 'ticket'],
    )
    const reason = /pay did not run: the open effects .* leave no room \(MAX_EFFECTS=2, /
    assert.match(await stored(client), reason)
  })

  test('that a later call gets stays at the limits', async (context) => {
    context.mock.method(console, 'log', () => {})
    receiver.errors.push(new Error('reset'))
    receiver.hasReconcile = false
    const [first, second, third, fourth] = [1, 2, 3, 4].map((order) => {
      return toolCall('pay', { order: String(order) })
    }) as [Answer, Answer, Answer, Answer]
    const turns = [PAY, reply('Unknown.'), first, reply('ok'), second, reply('ok')]
    const script = [...turns, PAY, third, fourth, BROKEN, PAY, reply('ok')]
    const client = makeClient(script, { maxEffects: 2 })
    await say(client, 'k1')
    const [, key = ''] = receiver.calls[0]!
    await runCommand(client, 'settle', key, 'done', '--result', 'By hand.')
    restart(client) // registers the tools again
    for (const turn of ['k2', 'k3', 'k4']) await say(client, turn)
    assert.equal(receiver.count('pay'), 4)
    assert.equal((await say(client, 'k4')).turn, 4)
    assert.equal(receiver.count('pay'), 4)
    assert.match(await history(client), /By hand/)
  })

  test('is not dropped for the outcome of a scheduled call', async (context) => {
    receiver.ending = 'x'.repeat(20)
    const sends = ['1', '2', '3'].map((id) => toolCall('send', { to: 'ada' }, id))
    const script = [sends, reply('ok'), PAY, BROKEN, PAY, reply('ok')]
    const client = makeClient(script, { maxEffectBytes: 100 })
    const watchAgain = stopWatching(context)
    await say(client)
    watchAgain()
    await say(client, 'k')
    await finish(client)
    assert.equal((await say(client, 'k')).turn, 2)
    assert.equal(receiver.count('send'), 3)
    assert.equal(receiver.count('pay'), 1)
    assert.doesNotMatch(await history(client), /did not run/)
  })
})

describe('a mistake', () => {
  const schema = z.object({})
  const fields = { name: 'refund', kind: 'once', schema } as const

  test('in a function is one clear sentence', () => {
    function* refund() {}
    assert.throws(() => register({ ...fields, run: refund }), /refund is a generator/)
  })

  test('in a name is one clear sentence', () => {
    FUNCTIONS.clear()
    register({ ...fields, run: () => 'ok' })
    const again = () => register({ ...fields, run: () => 'ok' })
    assert.throws(again, /Two effects have the name refund/)
  })

  test('in arguments is one clear sentence', async () => {
    const weighed = z.object({ kilos: z.string().transform(Number) })
    const effect = new EffectFunction({ ...fields, schema: weighed, run: () => 'ok' })
    const message = /The arguments of refund cannot be saved as JSON, so it did not run\./
    await assert.rejects(effect.serialize({ kilos: 7 }), message)
  })

  test('of a receiver shows no arguments in the log', async (context) => {
    const log = captureLog(context)
    receiver.errors.push(new Error('secret'))
    const call = toolCall('send', { to: 'secret' })
    const client = makeClient([call, reply('ok')], { effectRetrySeconds: 0 })
    await say(client)
    await finish(client)
    assert.match(log.join('\n'), /effect send/)
    assert.doesNotMatch(log.join('\n'), /secret/)
  })
})

test('a command without a session store says so', () => {
  const { status, stderr } = run(['effects', 'list'], '')
  assert.equal(status, 1)
  assert.match(stderr, /^Error: Sessions are in the process of the agent/)
})
