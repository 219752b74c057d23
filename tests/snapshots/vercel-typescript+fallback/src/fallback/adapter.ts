// Two models as one model of the AI SDK.

import { type LanguageModel, type LanguageModelMiddleware, wrapLanguageModel } from 'ai'

import type { Options } from '../capability.ts'
import { ownPrompt } from '../messages.ts'
import { isTemporary, type Second } from './second.ts'

type Model = Extract<LanguageModel, { specificationVersion: 'v4' }>

const RETRIES = 2 // of the first model, by the SDK

/** Make the model of a turn one whose second model answers what the first one fails. */
export function withFallback(options: Options, second: Second): void {
  const first = options.model as Model
  let tries = 0 // of the running call: a turn has one at a time
  let producer = first.modelId // of its answer
  const middleware: LanguageModelMiddleware = {
    wrapStream: async ({ model, params }) => {
      const begin = async (late: AbortSignal) => {
        const signals = [late, ...(params.abortSignal ? [params.abortSignal] : [])]
        const prompt = ownPrompt(params.prompt, model.modelId)
        return await model.doStream({ ...params, prompt, abortSignal: AbortSignal.any(signals) })
      }
      try {
        const answer = await second.inTime(begin)
        tries = 0
        producer = model.modelId
        return answer
      } catch (error) {
        const { isRetryable } = Object(error) as { isRetryable?: boolean }
        tries += 1
        if (isRetryable && isTemporary(error) && tries <= RETRIES) throw error
        tries = 0
        const other = (await second.takeOver(error)) as Model
        const prompt = ownPrompt(params.prompt, other.modelId)
        const answer = await other.doStream({ ...params, prompt })
        producer = other.modelId
        second.answers()
        return answer
      }
    },
  }
  options.model = wrapLanguageModel({ model: first, middleware })
  options.producer = () => producer
  options.maxRetries = RETRIES
}
