// A model's answers are repaired before their calls run, and checked before the commit.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'

import { jsonSchema, type ModelMessage, tool } from 'ai'

import { Capability, type Options } from '../../src/harness/capability.ts'
import type { Turn } from '../../src/harness/contract.ts'
import { sendable } from '../../src/harness/file_parts.ts'
import { checkMessages, ownPrompt, restored } from '../../src/harness/messages.ts'
import { Client } from './client.ts'
import { type Answer, reasoning, toolCall } from './script.ts'

type Messages = { content: any[] }[]

const ADA = '{"customer":"ada"}'

/** Has a tool that accepts any arguments. */
class Orders extends Capability {
  /** The arguments of each run. */
  readonly runs: unknown[] = []

  override prepare(_turn: Turn, options: Options): void {
    const execute = (input: unknown) => this.runs.push(input)
    options.tools = { delete_orders: tool({ inputSchema: jsonSchema({}), execute }) }
  }
}

function makeClient(script: readonly Answer[], limits = {}): { client: Client; orders: Orders } {
  let orders!: Orders
  const client = new Client(script, limits, (settings, load) => {
    orders = new Orders(settings, [], load)
    return [orders]
  })
  return { client, orders }
}

/** Return the calls and results in a session. */
async function callsOf(client: Client, session: string): Promise<[any[], any[]]> {
  const [, answer, results] = await client.messages<{ content: any[] }>(session)
  return [answer?.content ?? [], results?.content ?? []]
}

describe('a tool does not run for', () => {
  async function isRefused(input: string): Promise<void> {
    const { client, orders } = makeClient([toolCall('delete_orders', input, 'a')])
    const chunks = await client.takeTurn('Delete them.', 'ada')
    assert.deepEqual(orders.runs, [])
    const [[call], [result]] = await callsOf(client, 'ada')
    assert.deepEqual(call.input, {})
    assert.equal(call.providerOptions.producer.received, input)
    const { type, value } = result.output
    assert.equal(type, 'error-text')
    assert.match(value, /^The arguments of this call are not one JSON object/)
    assert.ok(value.endsWith(`Received: ${input}`))
    const shown = { id: 'a', name: 'delete_orders', input }
    assert.deepEqual(chunks, [shown, { id: 'a', text: value, isError: true }, 'ok'])
  }

  test('truncated arguments', () => isRefused('{"customer":"ada"'))
  test('a Python literal', () => isRefused("{'customer': None}"))
  test('a list', () => isRefused(`[${ADA}]`))
  test('doubly encoded arguments', () => isRefused(JSON.stringify(ADA)))
  test('text after the object', () => isRefused(`${ADA} ok`))
  test('two objects', () => isRefused(ADA + ADA))
  test('a raw line feed', () => isRefused('{"customer":"a\nda"}'))
  test('NaN', () => isRefused('{"customer":NaN}'))
})

test('a rejected call above the limit keeps its received arguments', async () => {
  const step = [toolCall('delete_orders', ADA, 'a'), toolCall('delete_orders', '{"customer":', 'b')]
  const { client, orders } = makeClient([step], { maxToolCalls: 1 })
  await client.say('Delete them.', { session: 'ada' })
  assert.equal(orders.runs.length, 1)
  const [[, call], results] = await callsOf(client, 'ada')
  assert.deepEqual(call.input, {})
  assert.equal(call.providerOptions.producer.received, '{"customer":')
  const result = results.find(({ toolCallId }) => toolCallId === 'b')
  assert.match(result.output.value, /^Too many calls in one step/)
})

test('your prepareStep gets repaired messages, and its messages are repaired', async () => {
  /** Adds a blank text to the last answer and a user message after the results. */
  class Preparing extends Orders {
    received: Messages = []

    override prepare(turn: Turn, options: Options): void {
      super.prepare(turn, options)
      const prepareStep = ({ messages }: { messages: ModelMessage[] }) => {
        this.received = messages as Messages
        const [prompt, answer, results] = messages as any[]
        if (!answer) return {}
        const blank = { type: 'text', text: ' ' }
        const faulty = { ...answer, content: [blank, ...answer.content] }
        const added = { role: 'user', content: [{ type: 'text', text: 'Be brief.' }] }
        return { messages: [prompt, faulty, results, added] }
      }
      Object.assign(options, { prepareStep })
    }
  }
  let preparing!: Preparing
  const client = new Client([toolCall('delete_orders', '{"customer":')], {}, (settings, load) => {
    preparing = new Preparing(settings, [], load)
    return [preparing]
  })
  await client.say('Delete them.', { session: 'ada' })
  const [, answer, results] = preparing.received
  assert.deepEqual(answer!.content[0].input, {})
  assert.match(results!.content[0].output.value, /^The arguments of this call are not one JSON/)
  const [, , sentAnswer, , sentLast] = client.model.requests.at(-1) as unknown as Messages
  assert.equal(sentAnswer!.content.length, 1)
  assert.deepEqual(sentAnswer!.content[0].input, {})
  assert.equal(sentLast!.content[0].text, 'Be brief.')
})

test('each call has a valid and unique id', async () => {
  const ids = ['a', 'a', 'a.b:0', 'x'.repeat(41)]
  const { client, orders } = makeClient([ids.map((id) => toolCall('delete_orders', ADA, id))])
  await client.say('Delete them.', { session: 'ada' })
  assert.equal(orders.runs.length, 4)
  const [calls, results] = await callsOf(client, 'ada')
  const [first, ...others] = calls.map(({ toolCallId }) => toolCallId)
  assert.equal(first, 'a')
  for (const id of others) assert.match(id, /^[0-9a-f]{9}$/)
  const all = new Set([first, ...others])
  assert.equal(all.size, 4)
  assert.deepEqual(new Set(results.map(({ toolCallId }) => toolCallId)), all)
})

test('an invalid name runs no tool and becomes valid', async () => {
  const { client, orders } = makeClient([toolCall('delete orders', ADA)])
  await client.say('Delete them.', { session: 'ada' })
  assert.deepEqual(orders.runs, [])
  const [[call], [result]] = await callsOf(client, 'ada')
  assert.equal(call.toolName, 'delete_orders')
  assert.match(result.output.value, /unavailable tool/)
})

test('a lone surrogate in an argument is replaced', async () => {
  const { client, orders } = makeClient([toolCall('delete_orders', '{"customer":"a\\ud83d"}', 'a')])
  const [shown] = await client.takeTurn('Delete them.', 'ada')
  const input = { customer: 'a\ufffd' }
  assert.deepEqual(shown, { id: 'a', name: 'delete_orders', input })
  assert.deepEqual(orders.runs, [input])
  const [[call]] = await callsOf(client, 'ada')
  assert.deepEqual(call.input, input)
})

test('reasoning stays with its calls and returns only to its model', async () => {
  const { client } = makeClient([[reasoning('Hm.'), toolCall('delete_orders', ADA)]])
  await client.say('Delete them.', { session: 'ada' })
  const [[thought, call]] = await callsOf(client, 'ada')
  const signed = { vendor: { signature: 'signed' } }
  const producer = { model: 'scripted' }
  assert.deepEqual(thought.providerOptions, { ...signed, producer })
  assert.deepEqual(call.providerOptions, { producer })
  const [, answer] = await client.messages<Parameters<typeof ownPrompt>[0][number]>('ada')
  const [own] = ownPrompt([answer!], 'scripted') as Messages
  const unmarked = { ...call, providerOptions: {} }
  assert.deepEqual(own!.content, [{ ...thought, providerOptions: signed }, unmarked])
  const [other] = ownPrompt([answer!], 'other') as Messages
  assert.deepEqual(other!.content, [unmarked])
})

test('a session of an older version becomes valid', () => {
  const call = { type: 'tool-call', toolCallId: 'a:0', toolName: 'x y', input: [] }
  const output = { type: 'text', value: '1' }
  const result = { type: 'tool-result', toolCallId: 'a:0', toolName: 'x y', output }
  const turn = [
    { role: 'assistant', content: [call, call] },
    { role: 'tool', content: [result, result] },
  ] as ModelMessage[]
  const [first, results, second] = restored([...turn, ...turn]) as Messages
  const idsOf = (message?: { content: any[] }) => message!.content.map((part) => part.toolCallId)
  assert.equal(new Set([...idsOf(first), ...idsOf(second)]).size, 4)
  assert.deepEqual(idsOf(results), idsOf(first))
  assert.deepEqual(first!.content[0].input, {})
  assert.equal(first!.content[0].toolName, 'x_y')
})

describe('the check before a commit', () => {
  const user = { role: 'user', content: 'Go.' }
  const answer = { role: 'assistant', content: [{ type: 'text', text: 'Done.' }] }
  const callPart = { type: 'tool-call', toolCallId: 'a', toolName: 'x', input: {} }
  const call = { role: 'assistant', content: [callPart] }
  const resultPart = { type: 'tool-result', toolCallId: 'a', toolName: 'x', output: {} }
  const result = { role: 'tool', content: [resultPart] }

  function check(turn: object[], before: object[] = [], isWaiting = false): void {
    checkMessages(turn as ModelMessage[], before as ModelMessage[], isWaiting)
  }

  function isRefused(detail: string, ...turn: object[]): void {
    assert.throws(() => check(turn), { type: 'model_failed', detail })
  }

  test('accepts a turn with a call and its result', () => {
    check([user, call, result, answer])
  })

  test('accepts a call that waits for an approval', () => {
    check([user, call], [], true)
  })

  test('rejects a turn with two replies in a row', () => {
    isRefused('the roles do not alternate', user, answer, answer)
  })
  test('rejects a turn with a call without a result', () => {
    isRefused('a call has no result', user, call, answer)
  })
  test('rejects a turn with a result without a call', () => {
    const results = { role: 'tool', content: [resultPart, resultPart] }
    isRefused('a result has no call', user, call, results, answer)
  })
  test('rejects a turn with two calls of the same id', () => {
    isRefused('two calls have the same id', user, call, result, call, result, answer)
  })
  test('rejects a turn with a call id of an earlier turn', () => {
    assert.throws(() => check([user, call, result, answer], [call]), { type: 'model_failed' })
  })
  test('rejects a turn with an empty message', () => {
    isRefused('a message is empty', user, { role: 'assistant', content: [] })
  })
  test('rejects a turn with a blank text', () => {
    const blank = { role: 'assistant', content: [{ type: 'text', text: ' ' }] }
    isRefused('a text is blank', user, blank)
  })
  test('rejects a turn without a reply', () => {
    isRefused('the last message is not from the assistant', user, call, result)
  })
  test('rejects a turn with a lone surrogate', () => {
    isRefused('a text is not well formed', { role: 'user', content: '\ud83d' }, answer)
  })
})

describe('files', () => {
  const lost = '[A file that the session store has lost]'

  function sent(files: [mediaType: string, data: string][], accepted: string[]) {
    const value = files.map(([mediaType, data]) => {
      return { type: 'file' as const, mediaType, data: { type: 'data' as const, data } }
    })
    const output = { type: 'content' as const, value }
    const result = { type: 'tool-result' as const, toolCallId: '1', toolName: 'photo', output }
    const prompt = sendable(
      [
        { role: 'user', content: value },
        { role: 'tool', content: [result] },
      ],
      accepted,
    )
    const parts = prompt.flatMap(({ content }) => content as any[])
    const shown = parts.flatMap(({ output, ...part }) => output?.value ?? part)
    return shown.map(({ text, filename = '' }) => text ?? filename)
  }

  test('a note replaces a file that cannot be sent', () => {
    const note = '[A file of type image/gif, which this model does not accept]'
    const files: [string, string][] = [
      ['image/png', ''],
      ['image/gif', 'R0lG'],
      ['image', 'R0lG'],
    ]
    const texts = [lost, note, '']
    assert.deepEqual(sent(files, ['image/png']), [...texts, ...texts])
  })

  test('documents have different names', () => {
    const names = sent([['application/pdf', 'JVBE']], ['application/pdf'])
    assert.deepEqual(names, ['file', 'file-2'])
  })
})
