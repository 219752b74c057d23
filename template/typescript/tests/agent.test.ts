// Tests of your tools, which the offline model calls. Updates leave this file alone.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { run } from './client.ts'

test('word_count', () => {
  const { stdout } = run(['chat'], 'use word_count: one two three\n')
  assert.match(stdout, /The tool answered: 3/)
})
