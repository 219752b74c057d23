// A model's answers are repaired before their calls run, and checked before the commit.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'

import { BeforeModelCallEvent, type LocalAgent } from '@strands-agents/sdk'
import { DocumentBlock, ImageBlock, Message, type MessageData } from '@strands-agents/sdk'
import { TextBlock, tool, ToolResultBlock } from '@strands-agents/sdk'
import { z } from 'zod'

import { Capability, type Options } from '../../src/harness/capability.ts'
import type { ToolCall, Turn } from '../../src/harness/contract.ts'
import { sendable } from '../../src/harness/file_parts.ts'
import { checkMessages } from '../../src/harness/messages.ts'
import { Client } from './client.ts'
import { type Answer, reasoning, reply, stop, toolCall } from './script.ts'
import { ScriptedModel } from './scripted_model.ts'

const ADA = '{"customer": "ada"}'

/** Has a tool with a visible effect. */
class Orders extends Capability {
  /** The customers whose orders were deleted. */
  readonly deleted: string[] = []

  override tools() {
    const inputSchema = z.object({ customer: z.string().default('everybody') })
    const callback = ({ customer }: { customer: string }) => {
      this.deleted.push(customer)
      return 'deleted'
    }
    const description = 'Delete the orders of a customer.'
    return [tool({ name: 'delete_orders', description, inputSchema, callback })]
  }
}

function makeClient(script: readonly Answer[]): { client: Client; orders: Orders } {
  let orders!: Orders
  const client = new Client(script, {}, (settings, load) => {
    orders = new Orders(settings, [], load)
    return [orders]
  })
  return { client, orders }
}

function isCall(chunk: unknown): chunk is ToolCall {
  return typeof chunk === 'object' && chunk !== null && 'input' in chunk
}

describe('a tool does not run for', () => {
  async function isRefused(input: string): Promise<void> {
    const { client, orders } = makeClient([toolCall('delete_orders', input, 'a'), reply('Done.')])
    const chunks = await client.takeTurn('Delete them.', 'ada')
    assert.deepEqual(orders.deleted, [])
    const text =
      'The arguments of this call are not one JSON object, so the tool did not run. ' +
      `Send the call again. Received: ${input}`
    const call = { id: 'a', name: 'delete_orders', input }
    assert.deepEqual(chunks, [call, { id: 'a', text, isError: true }, 'Done.'])
    const [, answer] = await client.messages<MessageData>('ada')
    const toolUse = { name: 'delete_orders', toolUseId: 'a', input: {} }
    assert.deepEqual(answer?.content, [{ toolUse }])
  }

  test('truncated arguments', () => isRefused('{"customer": "ada"'))
  test('a Python literal', () => isRefused("{'customer': None}"))
  test('a list', () => isRefused(`[${ADA}]`))
  test('doubly encoded arguments', () => isRefused(JSON.stringify(ADA)))
  test('text after the object', () => isRefused(`${ADA} Done.`))
  test('two objects', () => isRefused(`{}${ADA}`))
  test('a raw control character', () => isRefused('{"customer": "a\nda"}'))
  test('NaN', () => isRefused('{"customer": NaN}'))
  test('null', () => isRefused('null'))
})

test('a call without arguments runs', async () => {
  const { client, orders } = makeClient([toolCall('delete_orders', ' ')])
  await client.say('Delete them.', { session: 'ada' })
  assert.deepEqual(orders.deleted, ['everybody'])
})

test('a valid call beside a rejected call runs', async () => {
  const refused = toolCall('delete_orders', '{"customer": "bob', 'a')
  const valid = toolCall('delete_orders', ADA, 'b')
  const { client, orders } = makeClient([[refused, valid]])
  await client.say('Delete them.', { session: 'ada' })
  assert.deepEqual(orders.deleted, ['ada'])
})

test('each call has a valid and unique id', async () => {
  const ids = ['a', 'a', '', 'functions.f:0', 'x'.repeat(41)]
  const step = ids.map((id) => toolCall('delete_orders', ADA, id))
  const { client, orders } = makeClient([step, step])
  const chunks = await client.takeTurn('Delete them.', 'ada')
  assert.equal(orders.deleted.length, 10)
  const found = chunks.filter(isCall).map(({ id }) => id)
  assert.equal(new Set(found).size, 10)
  for (const id of found) assert.match(id, /^(a|[0-9a-f]{9})$/)
})

for (const id of ['__proto__', 'constructor']) {
  test(`a call with the id ${id} shows its arguments`, async () => {
    const { client, orders } = makeClient([toolCall('delete_orders', ADA, id)])
    const [call] = await client.takeTurn('Delete them.', 'ada')
    assert.ok(isCall(call))
    assert.deepEqual(call.input, { customer: 'ada' })
    assert.deepEqual(orders.deleted, ['ada'])
  })
}

test('a call of a tool named __proto__ changes no object', async () => {
  const { client } = makeClient([toolCall('__proto__', '{}')])
  const [, result] = await client.takeTurn('Delete them.', 'ada')
  assert.match(JSON.stringify(result), /'__proto__' not found/)
  assert.equal('callCount' in {}, false)
})

test('an invalid name runs no tool and becomes valid', async () => {
  const step = [toolCall('delete.orders', ADA, 'a'), toolCall('', ADA, 'b')]
  const { client, orders } = makeClient([step])
  const chunks = await client.takeTurn('Delete them.', 'ada')
  assert.deepEqual(orders.deleted, [])
  const names = chunks.filter(isCall).map(({ name }) => name)
  assert.deepEqual(names, ['delete_orders', '_'])
})

test('a lone surrogate in an argument is replaced', async () => {
  const { client, orders } = makeClient([toolCall('delete_orders', '{"customer": "a\\ud83d"}')])
  await client.say('Delete them.', { session: 'ada' })
  assert.deepEqual(orders.deleted, ['a\ufffd'])
})

test('reasoning returns only to its model', async () => {
  const thoughtful = [reasoning('Hm.'), toolCall('delete_orders', ADA)]
  const { client } = makeClient([thoughtful])
  const other = new ScriptedModel([], 'other')
  await client.say('Delete them.', { session: 'ada' })
  client.runtime.model = other
  await client.say('Thanks.', { session: 'ada' })
  client.runtime.model = client.model
  await client.say('Goodbye.', { session: 'ada' })
  const kindsOf = (request: Message[] | undefined) => request?.[1]?.content.map(({ type }) => type)
  const [, sameTurn, laterTurn] = client.model.requests
  assert.deepEqual(kindsOf(sameTurn), ['reasoningBlock', 'toolUseBlock'])
  assert.deepEqual(kindsOf(other.requests[0]), ['toolUseBlock'])
  assert.deepEqual(kindsOf(laterTurn), ['reasoningBlock', 'toolUseBlock'])
})

test('a tool_use stop with text but without a call ends the reply', async () => {
  const client = new Client([[reply('Well.'), stop('tool_call')]])
  const answer = await client.say('Hello.', { session: 'ada' })
  assert.equal(answer.reply, 'Well.')
  assert.equal(client.model.requests.length, 1)
})

test('a tool_use stop without text and call is an empty reply', async () => {
  const client = new Client([stop('tool_call')])
  const answer = await client.say('Hello.', { session: 'ada' })
  assert.equal(answer.error, 'empty_reply')
  assert.equal(client.model.requests.length, 1)
})

describe('the check before a commit', () => {
  const user: MessageData = { role: 'user', content: [{ text: 'Hello.' }] }
  const answer: MessageData = { role: 'assistant', content: [{ text: 'Hi.' }] }
  const toolUse = { name: 'f', toolUseId: 'a', input: {} }
  const call: MessageData = { role: 'assistant', content: [{ toolUse }] }
  const toolResult = { toolUseId: 'a', status: 'success' as const, content: [{ text: '1' }] }
  const result: MessageData = { role: 'user', content: [{ toolResult }] }

  function assistant(text: string): MessageData {
    return { role: 'assistant', content: [{ text }] }
  }

  function isRefused(fault: string, ...messages: MessageData[]): void {
    const detail = `the turn would leave ${fault}`
    assert.throws(() => checkMessages(messages, false), { type: 'model_failed', detail })
  }

  test('accepts a turn with a call and its result', () => {
    checkMessages([user, call, result, answer], false)
  })

  test('accepts a call that waits for an approval', () => {
    checkMessages([user, call], true)
  })

  test('rejects a turn without a reply', () => isRefused('no reply at the end', user))
  test('rejects a turn with two replies in a row', () => {
    isRefused('roles that do not alternate', user, answer, answer)
  })
  test('rejects a turn without a prompt', () => isRefused('roles that do not alternate', answer))
  test('rejects a turn with an empty message', () => {
    isRefused('an empty message', user, { role: 'assistant', content: [] })
  })
  test('rejects a turn with a blank text', () => isRefused('a blank text', user, assistant(' \n')))
  test('rejects a turn with a call without a result', () => {
    isRefused('a call without a result', user, call)
  })
  test('rejects a turn with a prompt instead of a result', () => {
    isRefused('calls and results that differ', user, call, user, answer)
  })
  test('rejects a turn with a result without a call', () => {
    isRefused('calls and results that differ', user, answer, result, answer)
  })
  test('rejects a turn with two calls of the same id', () => {
    isRefused('two calls with the same id', user, call, result, call, result, answer)
  })
  test('rejects a turn with a lone surrogate', () => {
    isRefused('text that is not Unicode', user, assistant('\ud83d'))
  })
})

test('invalid messages leave the session unchanged', async () => {
  /** Adds a user message before each model call. */
  class Adding extends Capability {
    override prepare(_turn: Turn, options: Options): void {
      const initAgent = (agent: LocalAgent) => {
        const message = new Message({ role: 'user', content: [new TextBlock('And?')] })
        agent.addHook(BeforeModelCallEvent, () => void agent.messages.push(message))
      }
      options.plugins = [{ name: 'adding', initAgent }]
    }
  }
  const client = new Client([], {}, (settings, load) => [new Adding(settings, [], load)])
  const answer = await client.say('Hello.', { session: 'ada' })
  assert.equal(answer.error, 'model_failed')
  const { last } = await client.runtime.sessions.read('ada', null)
  assert.equal(last, null)
})

describe('files', () => {
  const lost = '[A file that the session store has lost]'
  const image = (text: string) =>
    new ImageBlock({ format: 'png', source: { bytes: Buffer.from(text) } })
  const document = (text: string) =>
    new DocumentBlock({ name: 'a', format: 'pdf', source: { bytes: Buffer.from(text) } })

  function sent(content: (ImageBlock | DocumentBlock)[], accepted: string[]) {
    const result = new ToolResultBlock({ toolUseId: '1', status: 'success', content })
    const messages = [new Message({ role: 'user', content: [...content, result] })]
    const [message] = sendable(messages, accepted)
    const blocks = message!.content.flatMap((block): object[] => {
      return block.type === 'toolResultBlock' ? block.content : [block]
    })
    return blocks.map((block) => ('text' in block ? block.text : 'name' in block && block.name))
  }

  test('a note replaces a file that cannot be sent', () => {
    const note = '[A file of type application/pdf, which this model does not accept]'
    const texts = [lost, note]
    assert.deepEqual(sent([image(''), document('a')], ['image/png']), [...texts, ...texts])
  })

  test('documents have different names', () => {
    const names = sent([document('a'), document('')], ['application/pdf'])
    assert.deepEqual(names, ['a', lost, 'a 2', lost])
  })
})
