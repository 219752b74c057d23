// Two models as one model of the AI SDK.

import { type LanguageModel, type LanguageModelMiddleware, wrapLanguageModel } from 'ai'

import type { Options } from '../capability.ts'
import { ownPrompt } from '../messages.ts'
import type { Call, Part } from '../echo_model.ts'
import { asError, startAnswer } from '../models/streaming.ts'
import type { FallbackSwitch, FirstCall } from './second.ts'

type Model = Extract<LanguageModel, { specificationVersion: 'v4' }>
type Answer = Awaited<ReturnType<Model['doStream']>>

const MAX_RETRIES = 2

// The parts that come in front of the content; Anthropic's client has one of its own.
const OPENING = 'stream-start response-metadata raw custom text-start reasoning-start'.split(' ')

/** Wrap the model of a turn so that failed calls fall back to the second model. */
export function withFallback(options: Options, fallback: FallbackSwitch): void {
  const first = options.model as Model
  let producer = first.modelId // of the answer: a turn has one call at a time
  const middleware: LanguageModelMiddleware = {
    wrapStream: async ({ model, params }) => {
      const begin = async (call: FirstCall) => {
        const answer = await answerOf(model, { ...params, abortSignal: call.signal })
        call.hasAnswered = true
        return begun(answer, call.signal)
      }
      const [answer, other] = await fallback.replace(params.abortSignal, begin)
      const answering = (other ?? model) as Model
      const result = answer ?? (await answerOf(answering, params))
      producer = answering.modelId
      if (other) fallback.answers()
      return result
    },
  }
  options.model = wrapLanguageModel({ model: first, middleware })
  options.producer = () => producer
  options.maxRetries = 0 // each of both is tried again, not both together
}

/** Call a model with its own reasoning only, and again after failures that may be temporary. */
function answerOf(model: Model, params: Call): Promise<Answer> {
  const prompt = ownPrompt(params.prompt, model.modelId)
  return startAnswer(model, { ...params, prompt }, MAX_RETRIES)
}

/** Return an answer that has sent content. Throws the error that came in its place. */
async function begun({ stream, ...about }: Answer, signal: AbortSignal): Promise<Answer> {
  const reader = stream.getReader()
  const cancel = () => void reader.cancel().catch(() => {})
  signal.addEventListener('abort', cancel) // a model may not look at its signal
  if (signal.aborted) cancel()
  const before: Part[] = []
  let next = await reader.read()
  while (!next.done && !isContent(next.value)) {
    if (next.value.type === 'error') throw asError(next.value.error) // which ends the call
    before.push(next.value)
    next = await reader.read()
  }
  const whole = new ReadableStream<Part>({
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
  return { ...about, stream: whole }
}

/** Whether a part brings text, reasoning, a tool call or a file. */
function isContent(part: Part): boolean {
  if (part.type === 'text-delta' || part.type === 'reasoning-delta') return part.delta !== ''
  return part.type !== 'error' && !OPENING.includes(part.type)
}
