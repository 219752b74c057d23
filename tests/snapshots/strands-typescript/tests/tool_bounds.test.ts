// The result of a tool is cut where it is too long.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { TextBlock, tool } from '@strands-agents/sdk'

import { Capability } from '../src/capability.ts'
import { type Chunk, type ToolResult, Turn } from '../src/contract.ts'
import { takeTurn } from '../src/turn.ts'
import { CallingModel } from './calling_model.ts'
import { Client } from './client.ts'

const MAX = 1000

class Long extends Capability {
  output: unknown

  override tools() {
    const callback = () => {
      if (this.output instanceof Error) throw this.output
      return this.output as string
    }
    return [tool({ name: 'long', description: 'Return a text.', callback })]
  }
}

/** Return the result of a tool, as a caller sees it. */
async function resultOf(output: unknown): Promise<ToolResult> {
  let long!: Long
  const given = { maxResultChars: MAX }
  const { runtime } = new Client([], given, (settings) => [(long = new Long(settings, []))])
  long.output = output
  runtime.model = new CallingModel([[['a', 'long', '{}']]])
  const chunks: Chunk[] = []
  const emit = async (chunk: Chunk) => void chunks.push(chunk)
  const turn = new Turn({ sessionId: 's', actor: null, key: null, prompt: 'Go.', emit })
  await takeTurn(runtime, turn, new AbortController().signal)
  return chunks[1] as ToolResult
}

const NOTE = /… \[cut: the result was (\d+) characters long\]$/

const CASES: [name: string, output: unknown, size: number][] = [
  ['a text', 'x'.repeat(5000), 5000],
  ['a text of characters that are two units', '😀'.repeat(1001), 1001],
  ['JSON', { list: Array(1000).fill(1) }, 2010],
  ['parts', [new TextBlock('a'.repeat(900)), new TextBlock('b'.repeat(900))], 1800],
  ['an error', new Error('e'.repeat(2000)), 2000],
]

for (const [name, output, size] of CASES) {
  test(`a result that is too long is cut: ${name}`, async () => {
    const { text, isError } = await resultOf(output)
    assert.equal(isError, output instanceof Error)
    const [note, counted] = NOTE.exec(text) ?? []
    assert.ok(note)
    assert.ok(Number(counted) >= size && Number(counted) < size + 20)
    assert.ok([...text.replaceAll('\n', '')].length <= MAX)
    assert.ok(text.isWellFormed())
  })
}

test('a result of the largest size is unchanged', async () => {
  for (const output of ['x'.repeat(MAX), '😀'.repeat(MAX)]) {
    assert.equal((await resultOf(output)).text, output)
  }
})
