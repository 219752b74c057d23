// What a model answered is repaired before it runs, is shown or is stored.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { jsonSchema, type ModelMessage, tool } from 'ai'

import { Capability, type Options } from '../src/capability.ts'
import { type Chunk, Turn } from '../src/contract.ts'
import { checkMessages, ownPrompt, restored } from '../src/messages.ts'
import { type Call as ModelCall, finish, OfflineModel, type Part } from '../src/offline_model.ts'
import { takeTurn } from '../src/turn.ts'
import { Client } from './client.ts'

type Call = { toolCallId: string; toolName: string; input: string }
type Messages = { content: any[] }[]

const OBJECT = '{"text":"a b"}'
const CALL = { toolCallId: 'a', toolName: 'word_count', input: OBJECT }
const OPTIONS = { producer: { model: 'offline' } }

/** Answers with parts, and then with a text; notes the last prompt. */
class Answering extends OfflineModel {
  #parts: Part[]
  prompt: unknown[] = []

  constructor(parts: Part[]) {
    super()
    this.#parts = parts
  }

  override async *answer({ prompt }: ModelCall): AsyncGenerator<Part> {
    this.prompt = prompt
    const parts = this.#parts.splice(0)
    yield* parts
    if (parts.length > 0) return yield finish('tool-calls')
    yield { type: 'text-start', id: '1' }
    yield { type: 'text-delta', id: '1', delta: 'Done.' }
    yield finish('stop')
  }
}

/** Has a tool that accepts each input and notes it. */
class Noting extends Capability {
  readonly inputs: unknown[] = []

  override prepare(_turn: Turn, options: Options): void {
    const execute = (input: unknown) => this.inputs.push(input)
    options.tools = { word_count: tool({ inputSchema: jsonSchema({}), execute }) }
  }
}

/** Run a turn; return the messages after the prompt, what was emitted, and what ran. */
async function run(parts: Part[], limits = {}): Promise<[Messages, Chunk[], unknown[]]> {
  let noting: Noting | undefined
  const { runtime } = new Client([], limits, (settings) => [(noting = new Noting(settings, []))])
  runtime.model = new Answering(parts)
  const emitted: Chunk[] = []
  const emit = async (chunk: Chunk) => void emitted.push(chunk)
  const turn = new Turn({ sessionId: 's', actor: null, key: null, prompt: 'Go.', emit })
  await takeTurn(runtime, turn, new AbortController().signal)
  const { data } = await runtime.sessions.read('s', null)
  return [data.messages.slice(1) as Messages, emitted, noting!.inputs]
}

function calls(...some: Partial<Call>[]): Part[] {
  return some.map((call) => ({ type: 'tool-call', ...CALL, ...call }))
}

const NO_OBJECTS = {
  truncated: '{"text":"a b"',
  'Python literals': "{'text': None}",
  'a list': `[${OBJECT}]`,
  'a JSON string': JSON.stringify(OBJECT),
  'text behind it': `${OBJECT} ok`,
  'two objects': OBJECT + OBJECT,
  'a raw line feed': '{"text":"a\nb"}',
  'a number that JSON lacks': '{"text":NaN}',
}

for (const [name, input] of Object.entries(NO_OBJECTS)) {
  test(`a call never runs with arguments that are not one object: ${name}`, async () => {
    const [[answer, results], emitted, inputs] = await run(calls({ input }))
    assert.deepEqual(inputs, [])
    assert.deepEqual(answer!.content[0].input, {})
    assert.equal(answer!.content[0].providerOptions.producer.received, input)
    const { type, value } = results!.content[0].output
    assert.equal(type, 'error-text')
    assert.match(value, /^The arguments of this call are not one JSON object/)
    assert.ok(value.endsWith(`Received: ${input}`))
    assert.deepEqual(emitted.slice(0, 2), [
      { id: 'a', name: 'word_count', input },
      { id: 'a', text: value, isError: true },
    ])
  })
}

test('a call over the limit keeps what was received', async () => {
  const calling = calls({}, { toolCallId: 'b', input: '{"text":' })
  const [[answer, results], , inputs] = await run(calling, { maxToolCalls: 1 })
  assert.equal(inputs.length, 1)
  assert.deepEqual(answer!.content[1].input, {})
  assert.equal(answer!.content[1].providerOptions.producer.received, '{"text":')
  const [output] = results!.content.filter(({ toolCallId }) => toolCallId === 'b')
  assert.match(output.output.value, /^Too many calls in one step/)
})

/** Looks at the messages of a step, and returns some with a fault. */
class Preparing extends Noting {
  seen: Messages = []

  override prepare(turn: Turn, options: Options): void {
    super.prepare(turn, options)
    const prepareStep = ({ messages }: { messages: ModelMessage[] }) => {
      this.seen = messages as Messages
      const added = { role: 'user', content: [{ type: 'text', text: 'Be brief.' }] }
      const blank = { type: 'text', text: ' ' }
      const [first, answer, ...others] = messages as any[]
      if (!answer) return {}
      return {
        messages: [first, { ...answer, content: [blank, ...answer.content] }, ...others, added],
      }
    }
    Object.assign(options, { prepareStep })
  }
}

test('prepareStep of yours gets the repaired messages, and its own are repaired', async () => {
  let preparing: Preparing | undefined
  const model = new Answering(calls({ input: '{"text":' }))
  const { runtime } = new Client([], {}, (settings) => [(preparing = new Preparing(settings, []))])
  runtime.model = model
  const emit = async () => {}
  const turn = new Turn({ sessionId: 's', actor: null, key: null, prompt: 'Go.', emit })
  await takeTurn(runtime, turn, new AbortController().signal)
  const [, answer, results] = preparing!.seen
  assert.deepEqual(answer!.content[0].input, {})
  assert.match(results!.content[0].output.value, /^The arguments of this call are not one JSON/)
  const [, , sent, , last] = model.prompt as Messages
  assert.deepEqual([sent!.content.length, sent!.content[0].input], [1, {}])
  assert.equal(last!.content[0].text, 'Be brief.')
})

test('each call has a valid id of its own, and a valid name', async () => {
  const long = 'x'.repeat(41)
  const odd = [{}, {}, { toolCallId: 'a.b:0' }, { toolCallId: long }, { toolName: 'word count' }]
  const [[answer, results], , inputs] = await run(calls(...odd))
  const ids = answer!.content.map(({ toolCallId }) => toolCallId)
  assert.equal(ids[0], 'a')
  for (const id of ids.slice(1)) assert.match(id, /^[0-9a-f]{9}$/)
  assert.equal(new Set(ids).size, 5)
  assert.deepEqual(new Set(results!.content.map(({ toolCallId }) => toolCallId)), new Set(ids))
  assert.equal(answer!.content[4].toolName, 'word_count')
  assert.match(results!.content[4].output.value, /unavailable tool/)
  assert.equal(inputs.length, 4)
})

test('what runs and is stored has no lone surrogates', async () => {
  const [[answer], emitted, inputs] = await run(calls({ input: '{"text":"a \\ud83d b"}' }))
  const expected = { text: 'a \ufffd b' }
  assert.deepEqual([answer!.content[0].input, inputs], [expected, [expected]])
  assert.deepEqual(emitted[0], { id: 'a', name: 'word_count', input: expected })
})

test('reasoning stays with calls, and goes back to its own model only', async () => {
  const thought: Part[] = [
    { type: 'reasoning-start', id: '1' },
    { type: 'reasoning-delta', id: '1', delta: 'Hm.' },
    { type: 'reasoning-end', id: '1', providerMetadata: { vendor: { signature: 'abc' } } },
  ]
  const [messages] = await run([...thought, ...calls({})])
  const [reasoning, call] = messages[0]!.content
  assert.deepEqual(reasoning.providerOptions, { vendor: { signature: 'abc' }, ...OPTIONS })
  assert.deepEqual(call.providerOptions, OPTIONS)
  const prompt = messages as Parameters<typeof ownPrompt>[0]
  const [own] = ownPrompt(prompt, 'offline') as Messages
  const signed = { ...reasoning, providerOptions: { vendor: { signature: 'abc' } } }
  assert.deepEqual(own!.content, [signed, { ...call, providerOptions: {} }])
  const [other] = ownPrompt(prompt, 'other') as Messages
  assert.deepEqual(other!.content, [{ ...call, providerOptions: {} }])
})

test('a stored session of an older release is one that each provider takes', () => {
  const call = { type: 'tool-call', toolCallId: 'a:0', toolName: 'x y', input: [] }
  const output = { type: 'text', value: '1' }
  const result = { type: 'tool-result', toolCallId: 'a:0', toolName: 'x y', output }
  const turn = [
    { role: 'assistant', content: [call, call] },
    { role: 'tool', content: [result, result] },
  ] as ModelMessage[]
  const [first, results, second] = restored([...turn, ...turn]) as Messages
  const ids = [...first!.content, ...second!.content].map(({ toolCallId }) => toolCallId)
  assert.equal(new Set(ids).size, 4)
  assert.deepEqual(
    results!.content.map(({ toolCallId }) => toolCallId),
    ids.slice(0, 2),
  )
  assert.deepEqual([first!.content[0].input, first!.content[0].toolName], [{}, 'x_y'])
})

test('a turn that would leave an invalid session is not committed', () => {
  const user = { role: 'user', content: 'Go.' }
  const text = { role: 'assistant', content: [{ type: 'text', text: 'Done.' }] }
  const call = { type: 'tool-call', toolCallId: 'a', toolName: 'x', input: {} }
  const calling = { role: 'assistant', content: [call] }
  const result = { type: 'tool-result', toolCallId: 'a', toolName: 'x', output: {} }
  const results = { role: 'tool', content: [result] }
  const check = (turn: object[], before: object[] = [], isWaiting = false) => {
    checkMessages(turn as ModelMessage[], before as ModelMessage[], isWaiting)
  }
  check([user, calling, results, text])
  check([user, calling], [], true)
  const faults = {
    'the roles do not alternate': [user, text, text],
    'a call has no result': [user, calling, text],
    'a result has no call': [user, calling, { role: 'tool', content: [result, result] }, text],
    'two calls have one id': [user, calling, results, calling, results, text],
    'a message is empty': [user, { role: 'assistant', content: [] }],
    'a text is blank': [user, { role: 'assistant', content: [{ type: 'text', text: ' ' }] }],
    'the last message is not of the assistant': [user, calling, results],
    'a text is not well formed': [{ role: 'user', content: '\ud83d' }, text],
  }
  for (const [detail, turn] of Object.entries(faults)) {
    assert.throws(() => check(turn), { type: 'model_failed', detail })
  }
  assert.throws(() => check([user, calling, results, text], [calling]))
})
