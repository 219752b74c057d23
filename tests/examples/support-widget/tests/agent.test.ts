// Conversations with the support agent, in which the offline model calls its tool.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { findArticles } from '../src/help.ts'
import { run } from './client.ts'

test('a question finds the page that answers it', () => {
  const { stdout } = run(['chat'], 'use search_help: How long do returns take?\n')
  assert.match(stdout, /The tool answered: \/help\/returns: Return unused items within 30 days/)
})

test('a question that no page answers is no error', () => {
  const { stdout } = run(['chat'], 'use search_help: Who is the king?\n')
  assert.match(stdout, /The tool answered: No help page answers this\./)
})

test('the page with most words of the question is first', () => {
  const [first] = findArticles('My delivery is broken. Do I send a photo?')
  assert.equal(first?.title, 'Broken items')
})
