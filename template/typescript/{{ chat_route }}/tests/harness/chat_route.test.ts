// The route for useChat: a turn is committed, or its error part says that nothing was kept.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'

import { ChatRoute } from '../../src/harness/http/chat_route.ts'
import { Client } from './client.ts'
import { type Answer, fail, reply, toolCall } from './script.ts'

type Part = { type: string; [field: string]: unknown }
type Message = { id: string; role: string; parts: Part[] }

function makeClient(script: readonly Answer[]): Client {
  return new Client(script, {}, (settings, load) => [new ChatRoute(settings, [], load)])
}

/** Send the last message of the chat "ada" as useChat does; return the parts of the reply. */
async function send(client: Client, id: string, text: string, fields = {}): Promise<Part[]> {
  const message = { id, role: 'user', parts: [{ type: 'text', text }] }
  const chat = { id: 'ada', messages: [message], trigger: 'submit-message', ...fields }
  const answer = await client.request('POST', '/api/chat', {}, JSON.stringify(chat))
  assert.equal(answer.headers['x-vercel-ai-ui-message-stream'], 'v1')
  const events = answer.text.trimEnd().split('\n\n')
  assert.equal(events.pop(), 'data: [DONE]')
  return events.map((event) => JSON.parse(event.replace(/^data: /, '')))
}

/** Return the messages of the chat "ada". */
async function history(client: Client): Promise<Message[]> {
  const { text } = await client.get('/api/chat?id=ada')
  return JSON.parse(text)
}

/** Say "1", "2" and "3", and hear "reply 1", "reply 2" and "reply 3". */
async function talk(client: Client): Promise<void> {
  for (const [seen, prompt] of ['1', '2', '3'].entries()) {
    await send(client, `message-${prompt}`, prompt, { seen })
  }
}

describe('a turn', () => {
  const script = [[reply('counting'), toolCall('word_count', { text: 'a b' })], reply('two')]

  test('comes in parts', async () => {
    const parts = await send(makeClient(script), 'message-1', 'count')
    const types = parts.map(({ type }) => type)
    const toolTypes = types.filter((type) => type.startsWith('tool-'))
    assert.equal(toolTypes.length, 2)
    const text = ['text-start', 'text-delta', 'text-end']
    const otherTypes = types.filter((type) => !type.startsWith('tool-'))
    assert.deepEqual(otherTypes, ['start', ...text, ...text, 'finish'])
    assert.match(JSON.stringify(parts.at(-1)), /"messageMetadata":{"turn":1,/)
  })

  test('comes again as history', async () => {
    const client = makeClient(script)
    const [start] = await send(client, 'message-1', 'count')
    const [prompt, answer] = await history(client)
    const parts = [{ type: 'text', text: 'count' }]
    assert.deepEqual(prompt, { id: 'message-1', role: 'user', parts })
    assert.equal(answer?.id, start?.messageId)
    const types = answer?.parts.map(({ type }) => type)
    assert.deepEqual(types, ['text', 'dynamic-tool', 'text'])
  })
})

describe('a failed turn', () => {
  const script = [[reply('half'), fail(new Error('secret'))]]

  test('ends in an error part, and is no part of the history', async () => {
    const client = makeClient(script)
    const parts = await send(client, 'message-1', 'hi')
    const errorText = 'model_failed: The model failed; this turn was not saved.'
    assert.deepEqual(parts.at(-1), { type: 'error', errorText })
    assert.deepEqual(await history(client), [])
  })

  test('can be tried again, and its message is repeated after that', async () => {
    const client = makeClient(script)
    await send(client, 'message-1', 'hi')
    const retried = await send(client, 'message-1', 'hi')
    assert.equal(retried.at(-1)?.type, 'finish')
    const repeated = await send(client, 'message-1', 'hi')
    assert.equal(repeated.at(-1)?.type, 'finish')
    assert.equal((await history(client)).length, 2)
    assert.equal(client.model.requests.length, 2)
  })
})

describe('a message that is sent again', () => {
  const script = ['1', '2', '3', '4', '5'].map((number) => reply(`reply ${number}`))
  const trigger = 'regenerate-message'

  test('replaces its turn and all after it', async () => {
    const client = makeClient(script)
    await talk(client)
    await send(client, 'message-2', 'edited', { messageId: 'message-2', seen: 3 })
    const texts = (await history(client)).map(({ parts }) => parts[0]?.text)
    assert.deepEqual(texts, ['1', 'reply 1', 'edited', 'reply 4'])
  })

  test('gets a new reply', async () => {
    const client = makeClient(script)
    await talk(client)
    await send(client, 'message-1', '1', { trigger, seen: 3 })
    const ids = (await history(client)).map(({ id }) => id)
    assert.deepEqual(ids, ['message-1', 'message-1-reply'])
  })

  test('is refused if the page has not seen the last turn', async () => {
    const client = makeClient(script)
    await talk(client)
    const refused = await send(client, 'message-1', '1', { trigger, seen: 2 })
    assert.match(String(refused.at(-1)?.errorText), /^session_conflict: /)
    assert.equal((await history(client)).length, 6)
  })
})
