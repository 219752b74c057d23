// Files of a prompt.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Client } from './client.ts'
import { reply } from './script.ts'

const IMAGE = Buffer.from('89504e470d0a1a0a0000000d494844520000000200000002', 'hex')
const HEADERS = { Accept: 'application/json' }

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
