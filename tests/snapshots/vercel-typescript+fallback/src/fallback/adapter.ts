// Two models as one model of the AI SDK.

import { type LanguageModel, type LanguageModelMiddleware, wrapLanguageModel } from 'ai'

import type { Options } from '../capability.ts'
import { isTemporary, type Second } from './second.ts'

type Model = Extract<LanguageModel, { specificationVersion: 'v4' }>

const RETRIES = 2 // of the first model, by the SDK

/** Make the model of a turn one whose second model answers what the first one fails. */
export function withFallback(options: Options, second: Second): void {
  let tries = 0 // of the running call: a turn has one at a time
  const middleware: LanguageModelMiddleware = {
    wrapStream: async ({ model, params }) => {
      const begin = async (late: AbortSignal) => {
        const signals = [late, ...(params.abortSignal ? [params.abortSignal] : [])]
        return await model.doStream({ ...params, abortSignal: AbortSignal.any(signals) })
      }
      try {
        const answer = await second.inTime(begin)
        tries = 0
        return answer
      } catch (error) {
        const { isRetryable } = Object(error) as { isRetryable?: boolean }
        tries += 1
        if (isRetryable && isTemporary(error) && tries <= RETRIES) throw error
        tries = 0
        const answer = await ((await second.takeOver(error)) as Model).doStream(params)
        second.answers()
        return answer
      }
    },
  }
  options.model = wrapLanguageModel({ model: options.model as Model, middleware })
  options.maxRetries = RETRIES
}
