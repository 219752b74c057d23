// The route for useChat: a turn is committed, or its error part says that nothing was kept.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'

import { ChatRoute } from '../src/chat_route.ts'
import { createApp } from '../src/server.ts'
import { Client } from './client.ts'

type Part = { type: string; [field: string]: unknown }

/** Serve a client's runtime while `use` calls the address of its route. */
async function serving(client: Client, use: (url: string) => Promise<void>): Promise<void> {
  const server = createServer(createApp(client.runtime)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  try {
    await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}/api/chat`)
  } finally {
    server.closeAllConnections()
    server.close()
  }
}

/** Return the parts of a reply. */
async function say(url: string, id: string, text: string, more = {}): Promise<Part[]> {
  const said = { id, role: 'user', parts: [{ type: 'text', text }] }
  const body = JSON.stringify({ id: 's', messages: [said], trigger: 'submit-message', ...more })
  const response = await fetch(url, { method: 'POST', body })
  assert.equal(response.headers.get('x-vercel-ai-ui-message-stream'), 'v1')
  const [end, done, ...parts] = (await response.text()).split('\n\n').toReversed()
  assert.deepEqual([done, end], ['data: [DONE]', ''])
  return parts.toReversed().map((part) => JSON.parse(part.replace(/^data: /, '')))
}

async function history(url: string): Promise<{ id: string; parts: Part[] }[]> {
  return (await (await fetch(`${url}?id=s`)).json()) as { id: string; parts: Part[] }[]
}

test('a turn comes in parts, and again as history', async () => {
  await serving(
    new Client([['counting', ['call']], ['two']], {}, (settings) => [new ChatRoute(settings, [])]),
    async (url) => {
      const parts = await say(url, 'm1', 'count')
      const text = ['text-start', 'text-delta', 'text-end']
      const kinds = parts.map(({ type }) => type).filter((type) => !type.startsWith('tool-'))
      assert.deepEqual([kinds, parts.length], [['start', ...text, ...text, 'finish'], 10])
      assert.match(JSON.stringify(parts.at(-1)), /"messageMetadata":{"turn":1,/)
      const [asked, replied] = await history(url)
      assert.deepEqual(asked, { id: 'm1', role: 'user', parts: [{ type: 'text', text: 'count' }] })
      assert.equal(replied?.id, parts[0]?.messageId)
      const shown = replied?.parts.map(({ type }) => type)
      assert.deepEqual(shown, ['text', 'dynamic-tool', 'text'])
    },
  )
})

test('a failed turn ends in an error part, and can be tried again', async () => {
  await serving(
    new Client([['half', new Error('secret')]], {}, (settings) => [new ChatRoute(settings, [])]),
    async (url) => {
      const errorText = 'model_failed: The model failed; this turn was not kept.'
      assert.deepEqual((await say(url, 'm1', 'hi')).at(-1), { type: 'error', errorText })
      assert.deepEqual(await history(url), [])
      for (const _ of ['again', 'replayed']) {
        assert.equal((await say(url, 'm1', 'hi')).at(-1)?.type, 'finish')
      }
      assert.equal((await history(url)).length, 2)
    },
  )
})

test('a message that is sent again takes the place of its turn', async () => {
  const replies = [1, 2, 3, 4, 5].map((number) => [`reply ${number}`])
  await serving(
    new Client(replies, {}, (settings) => [new ChatRoute(settings, [])]),
    async (url) => {
      for (const [seen, id] of ['m1', 'm2', 'm3'].entries()) await say(url, id, id, { seen })
      await say(url, 'm2', 'edited', { messageId: 'm2', seen: 3 })
      const trigger = 'regenerate-message'
      const refused = await say(url, 'm1', 'm1', { trigger, seen: 3 })
      assert.match(String(refused.at(-1)?.errorText), /^session_conflict: /)
      const shown = (await history(url)).map(({ parts }) => parts[0]?.text)
      assert.deepEqual(shown, ['m1', 'reply 1', 'edited', 'reply 4'])
      await say(url, 'm1', 'm1', { trigger, seen: 2 })
      const ids = (await history(url)).map(({ id }) => id)
      assert.deepEqual(ids, ['m1', 'm1-reply'])
    },
  )
})
