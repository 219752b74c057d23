// The page: whole files, behind the checks, and a policy that lets them call only this server.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { test } from 'node:test'

import type { Settings } from '../src/capabilities.ts'
import { ChatRoute } from '../src/chat_route.ts'
import { Page } from '../src/page/capability.ts'
import { createApp } from '../src/server.ts'
import { Client, run } from './client.ts'

/** Return status and text of what is at a path. */
async function get(settings: Partial<Settings>, path: string, Host = '127.0.0.1:8080') {
  const { runtime } = new Client([], settings, (given) => {
    const route = new ChatRoute(given, [])
    return [route, new Page(given, [route])]
  })
  const server = createServer(createApp(runtime)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  try {
    const { port } = server.address() as AddressInfo
    const [answer] = await once(request({ port, path, headers: { Host } }).end(), 'response')
    return [answer.statusCode, await text(answer)] as const
  } finally {
    server.close()
  }
}

test('the page comes without a token, and only from here', async () => {
  const settings = { ui: 1, apiToken: 'sesame' }
  const [status, page] = await get(settings, '/')
  assert.deepEqual([status, page.includes('<script')], [200, true])
  for (const [, name] of page.matchAll(/(?:src|href)="([^"]+)"/g)) {
    const [code, content] = await get(settings, `/${name}`)
    assert.deepEqual([code, content.trim() !== ''], [200, true])
  }
  assert.equal((await get(settings, '/', 'localhost.evil.example'))[0], 403)
  assert.equal((await get({}, '/'))[0], 404)
})

test('a page for other machines needs a token', () => {
  const environment = { HOST: '0.0.0.0', UI: '1', API_TOKEN: '' }
  assert.match(run(['check'], '', environment).stdout, /SET-UI/)
  assert.doesNotMatch(run(['check'], '', { ...environment, API_TOKEN: 'x' }).stdout, /SET-UI/)
})
