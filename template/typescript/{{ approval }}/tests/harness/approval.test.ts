// Tool calls wait for a person, and the turn goes on with the answers.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'

import { Approval } from '../../src/harness/approval/capability.ts'
import { Answers } from '../../src/harness/approval/waiting.ts'
import { AgentError, TurnRequest, type TurnResult } from '../../src/harness/contract.ts'
import { type AgentResponse, Client, SESSION } from './client.ts'
import { Payments } from './payments.ts'
import { type Answer, reply, toolCall } from './script.ts'

const ADA = { session: 'ada' }
const PAY = toolCall('pay', { amount: 7 })

function makeClient(script: readonly Answer[] = []): { client: Client; payments: Payments } {
  let payments!: Payments
  const client = new Client(script, {}, (settings, load) => {
    payments = new Payments(settings, [], load)
    return [new Approval(settings, [], load), payments]
  })
  return { client, payments }
}

/** Send answers to the calls that wait in the session. */
function answer(client: Client, body: object): Promise<AgentResponse> {
  return client.post(body, { [SESSION]: 'ada' })
}

/** Return the id of the only call that waits. */
function idOf({ waiting = [] }: AgentResponse): string {
  const [call] = waiting
  assert.ok(call)
  assert.equal(waiting.length, 1)
  return call.id
}

describe('a call that needs an approval', () => {
  test('is pending, and its turn is not committed', async () => {
    const { client, payments } = makeClient([[reply('Well. '), PAY]])
    const { turn, waiting } = await client.say('Pay.', ADA)
    assert.equal(turn, 1)
    assert.equal(waiting?.[0]?.tool, 'pay')
    assert.deepEqual(waiting[0].input, { amount: 7 })
    assert.deepEqual(payments.paid, [])
  })

  test('runs once when it is approved, and the turn is committed', async () => {
    const { client, payments } = makeClient([[reply('Well. '), PAY], reply('Done.')])
    const id = idOf(await client.say('Pay.', ADA))
    const committed = await answer(client, { approve: [id] })
    assert.equal(committed.turn, 1)
    assert.equal(committed.reply, 'Well. Done.')
    const repeated = await answer(client, { approve: [id] })
    assert.equal(repeated.error, 'not_waiting')
    assert.deepEqual(payments.paid, [7])
    const conversation = ['Pay.', 'Well. ', '(toolUse)', '(toolResult)']
    assert.deepEqual(client.model.conversations.at(-1), conversation)
  })

  test('names the pending calls after a wrong approval', async () => {
    const { client } = makeClient([PAY])
    const id = idOf(await client.say('Pay.', ADA))
    const refused = await answer(client, { approve: ['other'] })
    assert.equal(refused.error, 'not_waiting')
    assert.ok(refused.text.includes(id))
  })

  test('does not run when it is denied, and the model gets the reason', async () => {
    const { client, payments } = makeClient([PAY, reply('No.')])
    const id = idOf(await client.say('Pay.', ADA))
    const denied = await answer(client, { deny: [{ id, reason: 'Not today.' }] })
    assert.equal(denied.reply, 'No.')
    assert.deepEqual(payments.paid, [])
    assert.match(JSON.stringify(await client.messages('ada')), /Not today\./)
  })

  test('does not run when it is denied, even if its gate was lifted', async () => {
    const { client, payments } = makeClient([PAY, reply('No.')])
    const id = idOf(await client.say('Pay.', ADA))
    payments.needsApproval = false
    const denied = await answer(client, { deny: [{ id, reason: 'Not today.' }] })
    assert.equal(denied.reply, 'No.')
    assert.deepEqual(payments.paid, [])
    assert.match(JSON.stringify(await client.messages('ada')), /Not today\./)
  })

  test('gets an error result when it is approved, if its tool is gone', async () => {
    const { client, payments } = makeClient([PAY, reply('Done.')])
    const id = idOf(await client.say('Pay.', ADA))
    payments.isGone = true
    const approved = await answer(client, { approve: [id] })
    assert.equal(approved.reply, 'Done.')
    assert.match(JSON.stringify(await client.messages('ada')), /error.*'pay'/)
  })

  test('is dropped by a new prompt', async () => {
    const { client, payments } = makeClient([PAY])
    await client.say('Pay.', ADA)
    const next = await client.say('Never mind.', ADA)
    assert.equal(next.dropped, true)
    assert.deepEqual(client.model.conversations.at(-1), ['Never mind.'])
    assert.deepEqual(payments.paid, [])
  })

  test('is pending in a session, whose turns stay if it is dropped', async () => {
    const { client } = makeClient([PAY, reply('No.'), PAY])
    const id = idOf(await client.say('Pay.', ADA))
    await answer(client, { deny: [{ id }] })
    idOf(await client.say('Pay.', ADA))
    await client.say('Never mind.', ADA)
    const conversation = ['Pay.', '(toolUse)', '(toolResult)', 'No.', 'Never mind.']
    assert.deepEqual(client.model.conversations.at(-1), conversation)
  })
})

describe('a call that was approved stays pending', () => {
  /** Approve a call, and call `act` while its approval is saved; then approve it again. */
  async function staysPending(act: (client: Client, stop: AbortController) => void): Promise<void> {
    const { client, payments } = makeClient([PAY, reply('Done.')])
    const id = idOf(await client.say('Pay.', ADA))
    const { store } = client.runtime.sessions
    const save = store.save.bind(store)
    const stop = new AbortController()
    store.save = async (...values) => {
      store.save = save
      act(client, stop)
      return save(...values)
    }
    const request = new Answers({ sessionId: 'ada' }, new Map([[id, null]]))
    await assert.rejects(client.runtime.spawn(request, { signal: stop.signal }))
    assert.deepEqual(payments.paid, [])
    const approved = await answer(client, { approve: [id] })
    assert.equal(approved.reply, 'Done.')
    assert.deepEqual(payments.paid, [7])
    const repeated = await answer(client, { approve: [id] })
    assert.equal(repeated.error, 'not_waiting')
  }

  test('if its client leaves before it runs', () => staysPending((_, stop) => stop.abort()))

  test('if the store fails after it saved the approval', () =>
    staysPending(({ runtime }) => {
      const { store } = runtime.sessions
      const load = store.load.bind(store)
      store.load = async () => {
        store.load = load
        throw new AgentError('session_conflict')
      }
    }))
})

describe('an answer is refused, and the call stays pending,', () => {
  async function isRefusedWith(fields: object): Promise<void> {
    const { client } = makeClient([PAY, reply('Done.')])
    const id = idOf(await client.say('Pay.', ADA))
    const refused = await answer(client, { approve: [id], ...fields })
    assert.equal(refused.error, 'invalid_request')
    const approved = await answer(client, { approve: [id] })
    assert.equal(approved.reply, 'Done.')
  }

  test('with the end of the session', () => isRefusedWith({ end_session: true }))
  test('with a fork', () => isRefusedWith({ fork: 'copy', at_turn: 1 }))
  test('with the number of a turn', () => isRefusedWith({ at_turn: 1 }))
  test('with a prompt', () => isRefusedWith({ prompt: 'Hello.' }))
})

describe('the question in a terminal', () => {
  /** Answer with y; return the question. */
  async function approve(tool: string, input: object): Promise<string> {
    const request = new TurnRequest({ sessionId: 'ada', prompt: 'Pay.' })
    const waiting = [{ id: '1', name: tool, input }]
    const usage = { inputTokens: 0, cachedTokens: 0, outputTokens: 0 }
    const facts = { turn: 1, model: '', reply: '', output: undefined, outcome: 'waiting' } as const
    const result: TurnResult = { sessionId: 'ada', waiting, marks: [], usage, ...facts }
    const questions: string[] = []
    const read = async (question: string) => {
      questions.push(question)
      return 'y'
    }
    const [approval] = makeClient().client.runtime.capabilities
    const answers = await approval?.ask?.(result, request, read)
    assert.ok(answers instanceof Answers)
    assert.deepEqual(answers.reasons, new Map([['1', null]]))
    assert.equal(questions.length, 1)
    return questions[0]!
  }

  test('shows the tool and its arguments', async () => {
    const question = await approve('pay', { amount: 1.5 })
    assert.equal(question, 'Run pay {"amount":1.5}? [y/N/reason] ')
  })

  test('shows characters that are invisible', async () => {
    const input = { note: 'a\u202eb\n\u0007\u200bc' }
    const question = await approve('pay\u202e\n', input)
    assert.doesNotMatch(question, /[\p{C}\p{Zl}\p{Zp}]/u)
    const [, shown = ''] = /^Run pay\\u202e\\u000a (.*)\? \[y\/N\/reason\] $/.exec(question) ?? []
    assert.deepEqual(JSON.parse(shown), input)
  })

  test('names the tool again behind long arguments', async () => {
    const input = { note: 'a '.repeat(200) }
    const [first = '', second = ''] = (await approve('pay', input)).split('\n')
    assert.deepEqual(JSON.parse(first.replace('Run pay ', '')), input)
    assert.match(second, /^Run pay with these 411 characters\? \[y\/N\/reason\] $/)
  })
})
