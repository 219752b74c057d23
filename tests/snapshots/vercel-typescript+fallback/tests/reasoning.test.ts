// Each of two models gets back what it has thought, and nothing of the other one.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { Options } from '../src/capability.ts'
import { Shortening } from '../src/context_length.ts'
import { Turn } from '../src/contract.ts'
import { withFallback } from '../src/fallback/adapter.ts'
import { Second } from '../src/fallback/second.ts'
import { Calls, marked } from '../src/messages.ts'
import { type Call, OfflineModel } from '../src/offline_model.ts'
import type { Session } from '../src/sessions.ts'
import { createSettings } from '../src/settings.ts'
import { ShorterPrompts } from '../src/shortening.ts'
import { streaming } from '../src/streaming.ts'
import './client.ts'

type Model = Extract<Options['model'], { specificationVersion: 'v4' }>

/** Notes the reasoning in its prompts; its first calls fail. */
class Noting extends OfflineModel {
  override readonly modelId: string
  readonly thoughts: string[] = []
  failures: number

  constructor(name: string, failures: number) {
    super()
    this.modelId = name
    this.failures = failures
  }

  override async doStream(options: Call) {
    if (this.failures-- > 0) throw Object.assign(new Error('down'), { statusCode: 503 })
    const parts = options.prompt.flatMap(({ content }) => (content as { type: string }[]) ?? [])
    for (const part of parts) {
      if (part.type === 'reasoning') this.thoughts.push((part as { text?: string }).text ?? '')
    }
    return super.doStream(options)
  }
}

test('reasoning goes back to the model that answers', async () => {
  const [first, other] = [new Noting('first', 1), new Noting('other', 0)]
  const turn = new Turn({ sessionId: 's', actor: null, key: null, prompt: 'Go.' })
  const options: Options & { producer?: () => string } = { model: first, tools: {} }
  withFallback(options, new Second(turn, 'other', async () => other, 5))
  const calls = new Calls([], {}, createSettings())
  const prompts = new ShorterPrompts(new Shortening({} as Session, turn)) // nothing is too long
  const use: Parameters<typeof streaming>[2] = async (part) => calls.repair(part)
  const model = streaming(options.model, turn.signal, use, prompts, 0, options.producer) as Model
  const thoughts = ['first', 'other'].flatMap((name) => {
    const parts = marked([{ type: 'reasoning' as const, text: `of ${name}` }], name)
    return parts.map(({ providerMetadata, ...part }: any) => {
      return { ...part, providerOptions: providerMetadata }
    })
  })
  const text = { type: 'text' as const, text: 'Go.' }
  const prompt: Call['prompt'] = [
    { role: 'user', content: [text] },
    { role: 'assistant', content: [...thoughts, text] },
    { role: 'user', content: [text] },
  ]
  await model.doGenerate({ prompt })
  await model.doGenerate({ prompt })
  assert.deepEqual([other.thoughts, first.thoughts], [['of other'], ['of first']])
})
