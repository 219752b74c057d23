// The routes of the page.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { pathToFileURL } from 'node:url'

import { ROUTES } from '../src/routes.ts'
import { serveFile } from '../src/widget.ts'
import { Client } from './client.ts'

test('a file is served as it is, and one that is missing says how to build it', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'widget-'))
  const handler = serveFile('index.html', 'text/html', pathToFileURL(`${folder}/`))
  const { runtime } = new Client()
  const server = createServer((request, response) => void handler(request, response, runtime))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  try {
    const missing = await fetch(address)
    assert.equal(missing.status, 404)
    assert.match(await missing.text(), /npm run build/)
    writeFileSync(join(folder, 'index.html'), '<title>Shop</title>')
    const found = await fetch(address)
    assert.equal(found.headers.get('Content-Type'), 'text/html')
    assert.equal(await found.text(), '<title>Shop</title>')
  } finally {
    server.close()
  }
})

test('the page and its two files have routes', () => {
  assert.deepEqual(Object.keys(ROUTES), ['GET /', 'GET /widget.js', 'GET /widget.css'])
})
