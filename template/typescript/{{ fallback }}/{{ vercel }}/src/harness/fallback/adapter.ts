// Combines two AI SDK models.

import { type LanguageModel, type LanguageModelMiddleware, wrapLanguageModel } from 'ai'

import type { Options } from '../capability.ts'
import { ownPrompt } from '../messages.ts'
import type { Call, Part } from '../echo_model.ts'
import { asError, startAnswer } from '../models/streaming.ts'
import type { FallbackSwitch, FirstCall } from './second.ts'

type Model = Extract<LanguageModel, { specificationVersion: 'v4' }>
type Answer = Awaited<ReturnType<Model['doStream']>>

const MAX_RETRIES = 2

// The parts that precede the content, including a part that only the Anthropic client sends.
const OPENING = 'stream-start response-metadata raw custom text-start reasoning-start'.split(' ')

/** Wrap the model of a turn, so that the second model answers after a temporary failure. */
export function withFallback(options: Options, fallback: FallbackSwitch): void {
  const first = options.model as Model
  let producer = first.modelId // the model of the answer: a turn makes one call at a time
  const middleware: LanguageModelMiddleware = {
    wrapStream: async ({ model, params }) => {
      const begin = async (call: FirstCall) => {
        const answer = await answerOf(model, { ...params, abortSignal: call.signal })
        call.hasAnswered = true
        return withContent(answer, call.signal)
      }
      const [answer, fallbackModel] = await fallback.replace(params.abortSignal, begin)
      const answerer = (fallbackModel ?? model) as Model
      const result = answer ?? (await answerOf(answerer, params))
      producer = answerer.modelId
      if (fallbackModel) fallback.answers()
      return result
    },
  }
  options.model = wrapLanguageModel({ model: first, middleware })
  options.producer = () => producer
  options.maxRetries = 0 // each model has its own retries
}

/** Call a model with only its own reasoning; retry after temporary failures. */
function answerOf(model: Model, params: Call): Promise<Answer> {
  const prompt = ownPrompt(params.prompt, model.modelId)
  return startAnswer(model, { ...params, prompt }, MAX_RETRIES)
}

/** Wait for the first content of an answer, and return the answer. Throws its error. */
async function withContent({ stream, ...about }: Answer, signal: AbortSignal): Promise<Answer> {
  const reader = stream.getReader()
  const cancel = () => void reader.cancel().catch(() => {})
  signal.addEventListener('abort', cancel) // some models ignore the signal
  if (signal.aborted) cancel()
  const before: Part[] = []
  let next = await reader.read()
  while (!next.done && !isContent(next.value)) {
    if (next.value.type === 'error') throw asError(next.value.error) // an error part ends the call
    before.push(next.value)
    next = await reader.read()
  }
  const replay = new ReadableStream<Part>({
    start(controller) {
      for (const part of before) controller.enqueue(part)
      if (next.done) controller.close()
      else controller.enqueue(next.value)
    },
    async pull(controller) {
      const { done, value } = await reader.read()
      if (done) controller.close()
      else controller.enqueue(value)
    },
    cancel: (reason) => reader.cancel(reason),
  })
  return { ...about, stream: replay }
}

/** Whether a part contains text, reasoning, a tool call or a file. */
function isContent(part: Part): boolean {
  if (part.type === 'text-delta' || part.type === 'reasoning-delta') return part.delta !== ''
  return part.type !== 'error' && !OPENING.includes(part.type)
}
