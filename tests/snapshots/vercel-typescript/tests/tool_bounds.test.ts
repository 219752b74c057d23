// The result of a tool is cut where it is too long.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { jsonSchema, tool, type ToolResultPart } from 'ai'

import { Capability } from '../src/capability.ts'
import { type Chunk, type ToolResult, Turn } from '../src/contract.ts'
import { OfflineModel, textOf } from '../src/offline_model.ts'
import { takeTurn } from '../src/turn.ts'
import { Client } from './client.ts'

type Output = ToolResultPart['output']

const MAX = 1000
const NONE = Symbol('no output')

class Long extends Capability {
  output: unknown

  override tools() {
    const execute = () => {
      if (this.output instanceof Error) throw this.output
      return this.output
    }
    const toModelOutput = ({ output }: { output: unknown }): Output => {
      if (output === NONE) return { type: 'json' } as unknown as Output
      if (Array.isArray(output)) return { type: 'content', value: output }
      return typeof output === 'string'
        ? { type: 'text', value: output }
        : { type: 'json', value: output as never }
    }
    const long = tool({ inputSchema: jsonSchema({ type: 'object' }), execute, toModelOutput })
    return [['long', long] as [string, typeof long]]
  }
}

/** Return the result of a tool, as a caller sees it and as the model does. */
async function resultOf(output: unknown): Promise<[ToolResult, string]> {
  let long!: Long
  const given = { maxResultChars: MAX }
  const { runtime } = new Client([], given, (settings) => [(long = new Long(settings, []))])
  long.output = output
  runtime.model = new OfflineModel()
  const chunks: Chunk[] = []
  const emit = async (chunk: Chunk) => void chunks.push(chunk)
  const turn = new Turn({ sessionId: 's', actor: null, key: null, prompt: 'use long: {}', emit })
  await takeTurn(runtime, turn, new AbortController().signal)
  const { data } = await runtime.sessions.read('s', null)
  const [, , message] = data.messages as { content: { output: Output }[] }[]
  return [chunks[1] as ToolResult, textOf(message!.content[0]!.output)]
}

const NOTE = /… \[cut: the result was (\d+) characters long\]$/

const part = (text: string) => ({ type: 'text' as const, text })
const CASES: [name: string, output: unknown, size: number][] = [
  ['a text', 'x'.repeat(5000), 5000],
  ['a text of characters that are two units', '😀'.repeat(1001), 1001],
  ['JSON', { list: Array(1000).fill(1) }, 2010],
  ['parts', [part('a'.repeat(900)), part('b'.repeat(900))], 1800],
  ['an error', new Error('e'.repeat(2000)), 2000],
]

for (const [name, output, size] of CASES) {
  test(`a result that is too long is cut: ${name}`, async () => {
    const [{ text, isError }, told] = await resultOf(output)
    assert.equal(isError, output instanceof Error)
    for (const cut of [text, told]) {
      const [note, counted] = NOTE.exec(cut) ?? []
      assert.ok(note)
      assert.ok(Number(counted) >= size && Number(counted) < size + 100)
      assert.ok([...cut.replaceAll('\n', '')].length <= MAX)
      assert.ok(cut.isWellFormed())
    }
  })
}

test('a result of the largest size is unchanged', async () => {
  for (const output of ['x'.repeat(MAX), '😀'.repeat(MAX)]) {
    const [{ text }, told] = await resultOf(output)
    assert.deepEqual([text, told], [output, output])
  }
})

test('a result without a value is null', async () => {
  const [, told] = await resultOf(NONE)
  assert.equal(told, 'null')
})
