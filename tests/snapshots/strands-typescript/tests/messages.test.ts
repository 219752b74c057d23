// What a model answered is repaired, and the messages of a turn are checked before its commit.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Agent, BeforeModelCallEvent, type LocalAgent } from '@strands-agents/sdk'
import { Message, type MessageData, TextBlock, tool } from '@strands-agents/sdk'
import { z } from 'zod'

import { Capability, type Options } from '../src/capability.ts'
import { type Chunk, Turn } from '../src/contract.ts'
import { checkMessages, traceOnlyRecorded } from '../src/messages.ts'
import { takeTurn } from '../src/turn.ts'
import { CallingModel } from './calling_model.ts'
import { Client } from './client.ts'
import { ScriptedModel } from './scripted_model.ts'

const ADA = '{"customer": "ada"}'
const NOT_AN_OBJECT = {
  truncated: '{"customer": "ada"',
  'a Python literal': "{'customer': None}",
  'a list': `[${ADA}]`,
  'encoded twice': JSON.stringify(ADA),
  'followed by text': `${ADA} Done.`,
  'those of two calls': `{}${ADA}`,
  'with a raw control character': '{"customer": "a\nda"}',
  'not a number': '{"customer": NaN}',
  null: 'null',
}

class Orders extends Capability {
  /** The customers whose orders were deleted. */
  readonly deleted: string[] = []

  override tools() {
    const inputSchema = z.object({ customer: z.string().default('everybody') })
    const callback = ({ customer }: { customer: string }) => `${this.deleted.push(customer)}`
    return [tool({ name: 'delete_orders', description: 'Delete.', inputSchema, callback })]
  }
}

type Calls = ConstructorParameters<typeof CallingModel>[0]

async function play(...steps: Calls) {
  let orders!: Orders
  const client = new Client([], {}, (settings) => [(orders = new Orders(settings, []))])
  const { runtime } = client
  const model = new CallingModel(steps)
  const chunks: Chunk[] = []
  const say = async (answering = model) => {
    runtime.model = answering
    const emit = async (chunk: Chunk) => void chunks.push(chunk)
    const turn = new Turn({ sessionId: 's', actor: null, key: null, prompt: 'Hello.', emit })
    await takeTurn(runtime, turn, new AbortController().signal)
    const { data } = await runtime.sessions.read('s', null)
    return data.messages as MessageData[]
  }
  return { deleted: orders.deleted, model, chunks, say, stored: await say() }
}

for (const [name, input] of Object.entries(NOT_AN_OBJECT)) {
  test(`a call does not run if its arguments are ${name}`, async () => {
    const { deleted, chunks, stored } = await play([['a', 'delete_orders', input]])
    assert.deepEqual(deleted, [])
    const text =
      'The arguments of this call are not one JSON object, so the tool did not run. ' +
      `Send the call again. Received: ${input}`
    const call = { id: 'a', name: 'delete_orders', input }
    assert.deepEqual(chunks, [call, { id: 'a', text, isError: true }, 'Done.'])
    const toolUse = { name: 'delete_orders', toolUseId: 'a', input: {} }
    assert.deepEqual(stored[1]?.content.at(-1), { toolUse })
  })
}

test('a call without arguments runs, and so does one beside a refused one', async () => {
  const refused = ['b', 'delete_orders', '{"customer": "bob'] as const
  const step: Calls[0] = [['a', 'delete_orders', ' '], refused, ['c', 'delete_orders', ADA]]
  assert.deepEqual((await play(step)).deleted, ['everybody', 'ada'])
})

test('each call has an id of its own that every provider takes', async () => {
  const ids = ['a', 'a', '', 'functions.f:0', 'x'.repeat(41)]
  const step = ids.map((id) => [id, 'delete_orders', ADA] as const)
  const { deleted, chunks } = await play(step, step)
  assert.equal(deleted.length, 10)
  const found = chunks.flatMap((chunk) => (Object(chunk).name ? [Object(chunk).id] : []))
  assert.equal(new Set(found).size, 10)
  for (const id of found) assert.match(id, /^(a|[0-9a-f]{9})$/)
})

test('a call shows its arguments, also under the name of a property of all objects', async () => {
  for (const id of ['__proto__', 'constructor']) {
    const { deleted, chunks } = await play([[id, 'delete_orders', ADA]])
    assert.deepEqual(deleted, ['ada'])
    assert.deepEqual(chunks[0], { id, name: 'delete_orders', input: { customer: 'ada' } })
  }
})

test('a name that no tool can have runs nothing, and is stored in a valid form', async () => {
  const step: Calls[0] = [
    ['a', 'delete.orders', ADA],
    ['b', '', ADA],
  ]
  const { deleted, chunks } = await play(step)
  assert.deepEqual(deleted, [])
  const names = chunks.flatMap((chunk) => Object(chunk).name ?? [])
  assert.deepEqual(names, ['delete_orders', '_'])
})

test('half a character in an argument is replaced before the tool runs', async () => {
  const { deleted } = await play([['a', 'delete_orders', '{"customer": "a\\ud83d"}']])
  assert.deepEqual(deleted, ['a\ufffd'])
})

test('reasoning goes back to the model that it is of, and to no other', async () => {
  const { model, say } = await play([['a', 'delete_orders', ADA]])
  const other = new CallingModel([], 'other')
  await say(other)
  await say()
  const kinds = [model.requests[1], other.requests[0], model.requests.at(-1)].map((request) => {
    return request?.[1]?.content.map(({ type }) => type)
  })
  const own = ['reasoningBlock', 'toolUseBlock']
  assert.deepEqual(kinds, [own, ['toolUseBlock'], own])
})

test('a model that stops for a call without one has replied', async () => {
  const client = new Client([['Well.', ['bare']], [['bare']]])
  assert.equal(await client.say('s'), '1')
  assert.equal(await client.say('s'), 'empty_reply')
  assert.equal(client.model.calls.length, 2)
})

test('messages that the next request cannot use are not committed', () => {
  const user: MessageData = { role: 'user', content: [{ text: 'Hello.' }] }
  const reply: MessageData = { role: 'assistant', content: [{ text: 'Hi.' }] }
  const toolUse = { name: 'f', toolUseId: 'a', input: {} }
  const calling: MessageData = { role: 'assistant', content: [{ toolUse }] }
  const toolResult = { toolUseId: 'a', status: 'success' as const, content: [{ text: '1' }] }
  const result: MessageData = { role: 'user', content: [{ toolResult }] }
  const broken: [string, MessageData[]][] = [
    ['no reply at the end', [user]],
    ['roles that do not alternate', [user, reply, reply]],
    ['roles that do not alternate', [reply]],
    ['an empty message', [user, { role: 'assistant', content: [] }]],
    ['a blank text', [user, { role: 'assistant', content: [{ text: ' \n' }] }]],
    ['a call without a result', [user, calling]],
    ['calls and results that differ', [user, calling, user, reply]],
    ['calls and results that differ', [user, reply, result, reply]],
    ['an id of two calls', [user, calling, result, calling, result, reply]],
    ['text that is not Unicode', [user, { role: 'assistant', content: [{ text: '\ud83d' }] }]],
  ]
  for (const [what, messages] of broken) {
    const detail = `the turn would leave ${what}`
    assert.throws(() => checkMessages(messages, false), { type: 'model_failed', detail })
  }
  checkMessages([user, calling, result, reply], false)
  checkMessages([user, calling], true)
})

test('a turn that would leave such messages changes nothing', async () => {
  class Pushing extends Capability {
    override prepare(_turn: Turn, options: Options): void {
      const initAgent = (agent: LocalAgent) => {
        const message = new Message({ role: 'user', content: [new TextBlock('And?')] })
        agent.addHook(BeforeModelCallEvent, () => void agent.messages.push(message))
      }
      options.plugins = [{ name: 'pushing', initAgent }]
    }
  }
  const client = new Client([], {}, (settings) => [new Pushing(settings, [])])
  assert.equal(await client.say('s'), 'model_failed')
  assert.equal((await client.runtime.sessions.read('s', null)).last, null)
})

test('a span that nobody records costs no JSON', () => {
  const agent = new Agent({ model: new ScriptedModel([]), printer: false })
  traceOnlyRecorded(agent)
  const get = () => assert.fail('it was read')
  const tracer = Reflect.get(agent, '_tracer') as { startModelInvokeSpan(options: object): unknown }
  assert.notEqual(tracer.startModelInvokeSpan({ messages: [new Proxy({}, { get })] }), null)
})
