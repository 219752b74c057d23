// Long tool results are cut.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { TextBlock, tool } from '@strands-agents/sdk'

import { Capability } from '../../src/harness/capability.ts'
import type { ToolResult } from '../../src/harness/contract.ts'
import { Client } from './client.ts'
import { toolCall } from './script.ts'

const MAX_CHARS = 1000
const NOTE = /… \[cut: the result was (\d+) characters long\]$/

/** Return a tool's result for the caller. */
async function resultOf(callback: () => unknown): Promise<ToolResult> {
  class Report extends Capability {
    override tools() {
      const text = callback as () => string
      return [tool({ name: 'test_report', description: 'Write a report.', callback: text })]
    }
  }
  const settings = { maxResultChars: MAX_CHARS }
  const client = new Client([toolCall('test_report', {})], settings, (all, load) => [
    new Report(all, [], load),
  ])
  const [, result] = await client.takeTurn('Report.', 'ada')
  return result as ToolResult
}

/** The end of a cut result gives its approximate original length. */
function isCut({ text }: ToolResult, length: number): void {
  const [, noted] = NOTE.exec(text) ?? []
  assert.ok(Number(noted) >= length)
  assert.ok(Number(noted) < length + 20)
  const characters = [...text.replaceAll('\n', '')]
  assert.ok(characters.length <= MAX_CHARS)
  assert.ok(text.isWellFormed())
}

test('a long text is cut', async () => {
  const result = await resultOf(() => 'x'.repeat(5000))
  assert.equal(result.isError, false)
  isCut(result, 5000)
})

test('a text is cut between code points', async () => {
  isCut(await resultOf(() => '😀'.repeat(1001)), 1001)
})

test('long JSON is cut', async () => {
  isCut(await resultOf(() => ({ list: Array(1000).fill(1) })), 2010)
})

test('long parts are cut together', async () => {
  const parts = [new TextBlock('a'.repeat(900)), new TextBlock('b'.repeat(900))]
  isCut(await resultOf(() => parts), 1800)
})

test('a long error is cut', async () => {
  const result = await resultOf(() => {
    throw new Error('e'.repeat(2000))
  })
  assert.equal(result.isError, true)
  isCut(result, 2000)
})

test('a result of the maximum size stays unchanged', async () => {
  for (const output of ['x'.repeat(MAX_CHARS), '😀'.repeat(MAX_CHARS)]) {
    const { text } = await resultOf(() => output)
    assert.equal(text, output)
  }
})
