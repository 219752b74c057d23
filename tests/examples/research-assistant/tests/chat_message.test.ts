// The articles in the messages of a page.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { articlesIn, type ResearchMessage } from '../src/chat_message.ts'

test('articles of a message are objects', () => {
  const output = { title: 'Heat pump', extract: 'It moves heat.', url: 'https://example.com/' }
  const call = { type: 'dynamic-tool', toolName: 'look_up', toolCallId: '1', input: {} } as const
  const message: ResearchMessage = {
    id: '1',
    role: 'assistant',
    parts: [
      { ...call, state: 'output-available', output },
      { ...call, state: 'output-error', errorText: 'no article' },
      { type: 'text', text: 'Done.' },
    ],
  }
  assert.deepEqual(articlesIn(message), [output])
})
