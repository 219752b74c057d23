// An AI SDK model that counts its requests.

import { type LanguageModel, type LanguageModelMiddleware, wrapLanguageModel } from 'ai'

import { charsOf } from '../models/context_length.ts'
import type { Part } from '../echo_model.ts'
import type { Meter, Request } from './metering.ts'

type Model = Extract<LanguageModel, { specificationVersion: 'v4' }>

/** Wrap a model so that its requests count toward the limits. */
export function metered(model: LanguageModel, meter: Meter): LanguageModel {
  const middleware: LanguageModelMiddleware = {
    wrapStream: async ({ doStream, params }) => {
      const request = await meter.begin(charsOf([params.prompt, params.tools]))
      const { stream, ...about } = await doStream()
      return { ...about, stream: counted(stream, request) }
    },
  }
  return wrapLanguageModel({ model: model as Model, middleware })
}

/** Return the stream, and add its content to the request. */
function counted(stream: ReadableStream<Part>, request: Request): ReadableStream<Part> {
  const reader = stream.getReader()
  return new ReadableStream<Part>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read()
        if (value) add(value, request)
        else await request.count()
        if (done) controller.close()
        else controller.enqueue(value)
      } catch (error) {
        await request.count()
        throw error
      }
    },
    async cancel(reason) {
      await reader.cancel(reason)
      await request.count()
    },
  })
}

function add(part: Part, request: Request): void {
  if ('delta' in part) request.chars += part.delta.length
  if (part.type !== 'finish') return
  const { inputTokens, outputTokens } = part.usage
  request.usage = (inputTokens.total ?? 0) + (outputTokens.total ?? 0)
}
