// A page of useChat that reloads or stops, and a second page that follows its turn.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'

import { Background } from '../../src/harness/background/capability.ts'
import { ChatStreams } from '../../src/harness/background/chat_streams.ts'
import type { Settings } from '../../src/harness/enabled.ts'
import { ChatRoute } from '../../src/harness/http/chat_route.ts'
import { ACTOR, type AgentResponse, Client, SESSION, until } from './client.ts'
import { type Answer, reply, wait } from './script.ts'

const STREAM = '/api/chat/ada/stream'

async function open(script: readonly Answer[], settings: Partial<Settings> = {}): Promise<Client> {
  const client = new Client(script, settings, (given, load) => {
    const background = new Background(given, [], load)
    return [background, new ChatStreams(given, [background], load), new ChatRoute(given, [], load)]
  })
  await client.runtime.open()
  return client
}

/** Send a message of the chat "ada". */
function send(client: Client, signal?: AbortSignal): Promise<AgentResponse> {
  const message = { id: 'message-1', role: 'user', parts: [{ type: 'text', text: 'Hi' }] }
  const chat = { id: 'ada', messages: [message], trigger: 'submit-message' }
  return client.request('POST', '/api/chat', {}, JSON.stringify(chat), signal)
}

/** Return the text of a stream. */
function textIn({ text }: AgentResponse): string {
  return Array.from(text.matchAll(/"delta":"(.*?)"/g), ([, delta]) => delta).join('')
}

describe('a turn', () => {
  test('has the stream of the chat route', async () => {
    const client = await open([reply('One, ', 'two.')])
    const { status, headers, text } = await send(client)
    assert.equal(status, 200)
    assert.equal(headers['x-vercel-ai-ui-message-stream'], 'v1')
    assert.equal(headers[SESSION.toLowerCase()], 'ada')
    assert.ok(headers['x-turn-id'])
    assert.match(text, /^data: {"type":"start","messageId":"message-1-reply"}\n\n/)
    assert.match(text, /\n\ndata: \[DONE\]\n\n$/)
    assert.doesNotMatch(text, /^id:/m)
  })

  test('continues without its page, and two pages follow it', async () => {
    const work = Promise.withResolvers<void>()
    const client = await open([[reply('One, '), wait(work.promise), reply('two.')]])
    const page = new AbortController()
    const sending = send(client, page.signal)
    await until(() => client.model.requests.length === 1)
    page.abort()
    await assert.rejects(sending)
    const following = [client.get(STREAM), client.get(STREAM)]
    const [background] = client.runtime.capabilities as [Background]
    await until(() => background.findHere('ada', null)?.readers.size === 2)
    work.resolve()
    for (const answer of await Promise.all(following)) {
      assert.equal(answer.headers['x-vercel-ai-ui-message-stream'], 'v1')
      assert.match(answer.text, /^data: {"type":"start","messageId":"message-1-reply"}\n\n/)
      assert.equal(textIn(answer), 'One, two.')
    }
    assert.equal((await client.get(STREAM)).status, 204)
    assert.match((await client.get('/api/chat?id=ada')).text, /One, two\./)
  })

  test('ends when its page stops it', async () => {
    const client = await open([[reply('One, '), wait()]])
    const sending = send(client)
    await until(() => client.model.requests.length === 1)
    const stopped = await client.request('DELETE', STREAM)
    assert.equal(stopped.status, 204)
    assert.match((await sending).text, /data: {"type":"abort"}\n\ndata: \[DONE\]\n\n$/)
    assert.equal((await client.get('/api/chat?id=ada')).text, '[]')
  })

  test('of another form is followed elsewhere', async () => {
    const client = await open([wait(), wait()])
    const sending = send(client)
    await until(() => client.model.requests.length === 1)
    const follow = await client.get('/invocations/ada/events')
    assert.equal(follow.status, 409)
    assert.equal(follow.error, 'turn_elsewhere')
    await client.request('DELETE', STREAM)
    await sending
    const headers = { [SESSION]: 'bob' }
    await client.post({ prompt: 'Hi', background: true }, headers)
    assert.equal((await client.get('/api/chat/bob/stream')).status, 204)
    await client.post({ stop: true }, headers)
  })

  test('of another actor is forbidden', async () => {
    const client = await open([wait()])
    const sending = send(client)
    await until(() => client.model.requests.length === 1)
    const bob = { [ACTOR]: 'bob' }
    assert.equal((await client.get(STREAM, bob)).error, 'session_forbidden')
    assert.equal((await client.request('DELETE', STREAM, bob)).error, 'session_forbidden')
    await client.request('DELETE', STREAM)
    await sending
  })
})

test('a refused turn hides no session from its actor', async () => {
  const client = await open([reply('One.')])
  await send(client)
  const [background] = client.runtime.capabilities as [Background]
  const message = { id: 'message-2', role: 'user', parts: [{ type: 'text', text: 'Hi' }] }
  const chat = JSON.stringify({ id: 'ada', messages: [message], trigger: 'submit-message' })
  const refused = await client.request('POST', '/api/chat', { [ACTOR]: 'bob' }, chat)
  assert.match(refused.text, /"errorText":"session_forbidden: /)
  assert.equal(background.findHere('ada', 'bob'), undefined)
  assert.equal((await client.get(STREAM)).status, 204)
})

test('an invalid message is rejected as by the chat route', async () => {
  const client = await open([])
  const answer = await client.request('POST', '/api/chat', {}, '{"id": "ada", "messages": []}')
  assert.equal(answer.status, 400)
  assert.equal(answer.error, 'invalid_request')
})
