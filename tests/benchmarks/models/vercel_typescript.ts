// In place of the offline model: three texts, whatever it is told, so that others' work is seen.

import type { LanguageModel } from 'ai'

type Model = Extract<LanguageModel, { specificationVersion: 'v4' }>
type Answer = Awaited<ReturnType<Model['doStream']>>
type Part = Answer['stream'] extends ReadableStream<infer Part> ? Part : never

const TEXTS = ['I am the offline model', ' of the benchmarks,', ' and say the same each time.']
const USAGE = {
  inputTokens: { total: 0, noCache: 0, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 0, text: 0, reasoning: 0 },
}
const PARTS: Part[] = [
  { type: 'text-start', id: '1' },
  ...TEXTS.map((delta): Part => ({ type: 'text-delta', id: '1', delta })),
  { type: 'text-end', id: '1' },
  { type: 'finish', finishReason: { unified: 'stop', raw: 'stop' }, usage: USAGE },
]

export class OfflineModel implements Model {
  readonly specificationVersion = 'v4'
  readonly provider = 'offline'
  readonly modelId = 'offline'
  readonly supportedUrls = {}

  doGenerate(): never {
    throw new Error('This model only streams.')
  }

  async doStream(): Promise<Answer> {
    return { stream: ReadableStream.from(PARTS) }
  }
}
