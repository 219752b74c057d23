// Long tool results are cut.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { jsonSchema, tool, type ToolResultPart } from 'ai'

import { Capability } from '../../src/harness/capability.ts'
import type { ToolResult } from '../../src/harness/contract.ts'
import { textOf } from '../../src/harness/echo_model.ts'
import type { NamedTool } from '../../src/harness/tools.ts'
import { Client } from './client.ts'
import { toolCall } from './script.ts'

type Output = ToolResultPart['output']

const MAX_CHARS = 1000
const NOTE = /… \[cut: the result was (\d+) characters long\]$/

/** Return a tool's result for the caller, and its text for the model. */
async function resultOf(
  execute: () => unknown,
  toModelOutput: (given: { output: any }) => Output = ({ output }) => ({
    type: 'text',
    value: output,
  }),
): Promise<{ shown: ToolResult; sent: string }> {
  class Report extends Capability {
    override tools(): NamedTool[] {
      const inputSchema = jsonSchema({ type: 'object' })
      return [['test_report', tool({ inputSchema, execute, toModelOutput })]]
    }
  }
  const settings = { maxResultChars: MAX_CHARS }
  const client = new Client([toolCall('test_report', {})], settings, (all, load) => [
    new Report(all, [], load),
  ])
  const [, shown] = await client.takeTurn('Report.', 'ada')
  const [, , message] = await client.messages<{ content: { output: Output }[] }>('ada')
  return { shown: shown as ToolResult, sent: textOf(message!.content[0]!.output) }
}

/** The end of a cut result gives its approximate original length. */
function isCut(text: string, length: number): void {
  const [, noted] = NOTE.exec(text) ?? []
  assert.ok(Number(noted) >= length)
  assert.ok(Number(noted) < length + 100)
  const characters = [...text.replaceAll('\n', '')]
  assert.ok(characters.length <= MAX_CHARS)
  assert.ok(text.isWellFormed())
}

test('a long text is cut', async () => {
  const { shown, sent } = await resultOf(() => 'x'.repeat(5000))
  assert.equal(shown.isError, false)
  isCut(shown.text, 5000)
  isCut(sent, 5000)
})

test('a text is cut between code points', async () => {
  const { shown, sent } = await resultOf(() => '😀'.repeat(1001))
  isCut(shown.text, 1001)
  isCut(sent, 1001)
})

test('long JSON is cut', async () => {
  const toJson = ({ output }: { output: any }): Output => ({ type: 'json', value: output })
  const { shown, sent } = await resultOf(() => ({ list: Array(1000).fill(1) }), toJson)
  isCut(shown.text, 2010)
  isCut(sent, 2010)
})

test('long parts are cut together', async () => {
  const parts = [
    { type: 'text', text: 'a'.repeat(900) },
    { type: 'text', text: 'b'.repeat(900) },
  ]
  const toParts = ({ output }: { output: any }): Output => ({ type: 'content', value: output })
  const { shown, sent } = await resultOf(() => parts, toParts)
  isCut(shown.text, 1800)
  isCut(sent, 1800)
})

test('a long error is cut', async () => {
  const { shown, sent } = await resultOf(() => {
    throw new Error('e'.repeat(2000))
  })
  assert.equal(shown.isError, true)
  isCut(shown.text, 2000)
  isCut(sent, 2000)
})

test('a result of the maximum size stays unchanged', async () => {
  for (const output of ['x'.repeat(MAX_CHARS), '😀'.repeat(MAX_CHARS)]) {
    const { shown, sent } = await resultOf(() => output)
    assert.equal(shown.text, output)
    assert.equal(sent, output)
  }
})

test('a result without a value is null', async () => {
  const withoutValue = () => ({ type: 'json' }) as unknown as Output
  const { sent } = await resultOf(() => 'unused', withoutValue)
  assert.equal(sent, 'null')
})
