// Files of a prompt.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'

import { Client } from './client.ts'
import { reply } from './script.ts'

const IMAGE = Buffer.from('89504e470d0a1a0a0000000d494844520000000200000002', 'hex')
const HEADERS = { Accept: 'application/json' }
const FORM = { 'Content-Type': 'multipart/form-data; boundary=edge' }

function fileOf(media_type: string, data: Uint8Array, name = '') {
  return { media_type, name, data: Buffer.from(data).toString('base64') }
}

test('the model sees a file in each turn', async () => {
  const client = new Client([reply('A photo.'), reply('Blue.')])
  const body = { prompt: 'What is it?', files: [fileOf('image/png', IMAGE)] }
  const first = await client.post(body, HEADERS)
  assert.equal(first.turn, 1)
  const second = await client.say('Which color?', { session: first.session_id! })
  assert.equal(second.turn, 2)
  assert.deepEqual(client.model.conversations, [
    ['What is it?', '(image)'],
    ['What is it?', '(image)', 'A photo.', 'Which color?'],
  ])
})

test('a file whose content has another type is refused', async () => {
  const files = [fileOf('image/jpeg', IMAGE, 'photo.jpg')]
  const answer = await new Client().post({ prompt: 'What is it?', files }, HEADERS)
  assert.equal(answer.status, 415)
  assert.equal(answer.error, 'unsupported_file')
  assert.match(answer.text, /photo\.jpg contains image\/png, not image\/jpeg\./)
})

test('files have limits', async () => {
  const client = new Client([], { maxFiles: 2, maxFileBytes: 10 })
  const small = fileOf('text/plain', Buffer.from('a'))
  const large = fileOf('text/plain', Buffer.from('a'.repeat(11)))
  for (const files of [[small, small, small], [large]]) {
    const answer = await client.post({ prompt: 'Read.', files }, HEADERS)
    assert.equal(answer.status, 413)
    assert.equal(answer.error, 'payload_too_large')
  }
})

test('a form can have files', async () => {
  const body = Buffer.concat([
    Buffer.from('--edge\r\nContent-Disposition: form-data; name="prompt"\r\n\r\nWhat is it?\r\n'),
    Buffer.from('--edge\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n'),
    Buffer.from('Content-Type: image/png\r\n\r\n'),
    IMAGE,
    Buffer.from('\r\n--edge--\r\n'),
  ])
  const cases: [Record<string, string>, number][] = [
    [{}, 200],
    [{ Origin: 'http://127.0.0.1:8080' }, 200],
    [{ Origin: 'http://127.0.0.1:3000' }, 400],
    [{ 'Sec-Fetch-Site': 'cross-site' }, 400],
  ]
  for (const [headers, status] of cases) {
    const client = new Client([reply('A photo.')])
    const answer = await client.post(body, { ...HEADERS, ...FORM, ...headers })
    assert.equal(answer.status, status)
    const expected = [['What is it?', '(image)']]
    assert.deepEqual(client.model.conversations, status === 200 ? expected : [])
  }
})

test('an invalid form is refused', async () => {
  const part = '--edge\r\nContent-Disposition: form-data; name="end_session"\r\n\r\nyes\r\n--edge--'
  const cases: [string, RegExp][] = [
    [part, /field \\"end_session\\" is not JSON/],
    [part.slice(0, -2), /incomplete/],
  ]
  for (const [body, reason] of cases) {
    const answer = await new Client().post(body, { ...HEADERS, ...FORM })
    assert.equal(answer.error, 'invalid_request')
    assert.match(answer.text, reason)
  }
})

test('a file is fetched only from a listed host', async (context) => {
  const requests: unknown[] = []
  const server = createServer((request, response) => {
    requests.push(request.url)
    response.end(IMAGE)
  }).listen(0, '127.0.0.1')
  context.after(() => server.close())
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const body = { prompt: 'What is it?', files: [{ url: `http://127.0.0.1:${port}/a.png` }] }
  const refused = await new Client().post(body, HEADERS)
  assert.equal(refused.status, 400)
  assert.match(refused.text, /files\[0\]\.url: set FILE_HOSTS to allow this host\./)
  assert.deepEqual(requests, [])
  const client = new Client([reply('A photo.')], { fileHosts: [`127.0.0.1:${port}`] })
  assert.equal((await client.post(body, HEADERS)).turn, 1)
  assert.deepEqual(client.model.conversations, [['What is it?', '(image)']])
  assert.deepEqual(requests, ['/a.png'])
})
