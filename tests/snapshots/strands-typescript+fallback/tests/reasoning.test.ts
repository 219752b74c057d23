// In a turn that two models answer, each sees its own reasoning and no other.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { Message, StreamOptions } from '@strands-agents/sdk'

import { Fallback } from '../src/fallback/capability.ts'
import { FALLBACK_SETTINGS } from '../src/fallback/settings.ts'
import { createSettings } from '../src/settings.ts'
import { CallingModel } from './calling_model.ts'
import { Client } from './client.ts'

/** Is down for the second and the third of its calls. */
class FailingModel extends CallingModel {
  #calls = 0

  override async *stream(messages: Message[], options?: StreamOptions) {
    this.#calls += 1
    const isDown = this.#calls === 2 || this.#calls === 3
    if (isDown) throw Object.assign(new Error('down'), { code: 'ECONNREFUSED' })
    yield* super.stream(messages, options)
  }
}

test('each of two models sees its own reasoning only', async () => {
  const [a, b] = ['a', 'b'].map((id) => [id, 'word_count', '{"text": "a b"}'] as const)
  const first = new FailingModel([[a!]], 'first')
  const second = new CallingModel([[b!]], 'second')
  const client = new Client([], {}, (core) => {
    const settings = createSettings({ ...core, modelFallback: 'second' }, FALLBACK_SETTINGS)
    const fallback = new Fallback(settings, [])
    fallback.model = Promise.resolve(second)
    return [fallback]
  })
  client.runtime.model = first
  assert.equal(await client.say('s'), '1')
  assert.equal(await client.say('s'), '2')
  const hasReasoning = (messages?: Message[]) =>
    messages?.flatMap(({ role, content }) =>
      role === 'assistant' ? [content[0]?.type === 'reasoningBlock'] : [],
    )
  assert.deepEqual(second.requests.map(hasReasoning), [[false], [false, true]])
  assert.deepEqual(hasReasoning(first.requests.at(-1)), [true, false, false])
})
