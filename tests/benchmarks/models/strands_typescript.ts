// In place of the offline model: three texts, whatever it is told, so that others' work is seen.

import { type BaseModelConfig, Model, type ModelStreamEvent } from '@strands-agents/sdk'

const TEXTS = ['I am the offline model', ' of the benchmarks,', ' and say the same each time.']

export class OfflineModel extends Model {
  updateConfig(): void {}

  getConfig(): BaseModelConfig {
    return { modelId: 'offline', contextWindowLimit: 1_000_000 }
  }

  async *stream(): AsyncIterable<ModelStreamEvent> {
    yield { type: 'modelMessageStartEvent', role: 'assistant' }
    yield { type: 'modelContentBlockStartEvent' }
    for (const text of TEXTS) {
      yield { type: 'modelContentBlockDeltaEvent', delta: { type: 'textDelta', text } }
    }
    yield { type: 'modelContentBlockStopEvent' }
    yield { type: 'modelMessageStopEvent', stopReason: 'endTurn' }
  }
}
