// The page: its files are whole, and only this machine gets them without a token.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'

import type { Settings } from '../../src/harness/enabled.ts'
import { ChatRoute } from '../../src/harness/http/chat_route.ts'
import { Page } from '../../src/harness/page/capability.ts'
import { ALONE, Client, run } from './client.ts'

function makeClient(settings: Partial<Settings>): Client {
  return new Client([], settings, (all, load) => {
    const route = new ChatRoute(all, [], load)
    return [route, new Page(all, [route], load)]
  })
}

describe('the page', () => {
  test('comes without a token, and so do its files', async () => {
    const client = makeClient({ ui: 1, apiToken: 'sesame' })
    const page = await client.get('/')
    assert.equal(page.status, 200)
    assert.match(page.text, /<script/)
    const links = [...page.text.matchAll(/(?:src|href)="([^"]+)"/g)]
    const names = new Set(links.map(([, name]) => name))
    for (const name of names) {
      const file = await client.get(`/${name}`)
      assert.equal(file.status, 200)
      assert.notEqual(file.text.trim(), '')
      for (const [, imported] of file.text.matchAll(/^import .* from '\.\/([^']+)'/gm)) {
        names.add(imported)
      }
    }
  })

  test('does not come under a foreign name', async () => {
    const client = makeClient({ ui: 1 })
    const { status } = await client.get('/', { Host: 'localhost.evil.example' })
    assert.equal(status, 403)
  })

  test('does not come unless UI is 1', async () => {
    const { status } = await makeClient({}).get('/')
    assert.equal(status, 404)
  })
})

describe('a page for other machines', () => {
  const open = { ...ALONE, HOST: '0.0.0.0', UI: '1' }

  test('is an error without a token', () => {
    const { stdout } = run(['check'], '', { ...open, API_TOKEN: '' })
    assert.match(stdout, /SET-UI/)
  })

  test('is no error with a token', () => {
    const { stdout } = run(['check'], '', { ...open, API_TOKEN: 'sesame' })
    assert.doesNotMatch(stdout, /SET-UI/)
  })
})
