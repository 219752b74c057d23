// Streams the answers of a model for `generateText`, because the web streams of `streamText` take
// more time than the rest of a turn.

import { setTimeout as delay } from 'node:timers/promises'

import { gateway, type LanguageModel, type LanguageModelMiddleware } from 'ai'
import { StreamProviderError, wrapLanguageModel } from 'ai'

import { AgentError } from '../contract.ts'
import { causesOf, describe } from '../log.ts'
import { marked, ownPrompt } from '../messages.ts'
import type { Call, Part } from '../echo_model.ts'
import { mediaTypesIn, sendable } from '../file_parts.ts'
import { isTooLong } from './context_length.ts'
import type { AcceptedTypes } from './rejected_files.ts'
import type { ShorterPrompts } from './shortening.ts'

type Model = Extract<LanguageModel, { specificationVersion: 'v4' }>
type Streamed = Awaited<ReturnType<Model['doStream']>>
type Content = Awaited<ReturnType<Model['doGenerate']>>['content'][number]
type Block = Extract<Content, { type: 'text' | 'reasoning' }>
type BlockPart = Extract<Part, { type: `${Block['type']}-${'start' | 'delta' | 'end'}` }>

const FIRST_WAIT = 2000 // milliseconds; doubles like the SDK's
const MAX_WAIT = 60_000 // limit of a provider's Retry-After

interface StreamingOptions {
  /** How often a call is retried before its answer begins. */
  readonly retries: number
  /** The media types that the model accepts. */
  readonly accepted: AcceptedTypes
  /** Names the answering model. */
  readonly producer?: (() => string) | undefined
}

/**
 * Return a model for `generateText` that reads its answers from their streams.
 *
 * `onPart` receives each part in order and returns it repaired, before the next part is read. An
 * incomplete answer or an ended turn throws AgentError, so that the SDK runs no tools. A call that
 * is rejected for its length or its files before any content is repeated with a shorter prompt, or
 * with notes instead of the files. `producer` names the answering model if `model` combines models;
 * each of them must drop the others' reasoning, as `ownPrompt` does.
 */
export function streaming(
  model: LanguageModel,
  stop: AbortSignal,
  onPart: (part: Part) => Promise<Part>,
  prompts: ShorterPrompts,
  { retries, accepted, producer }: StreamingOptions,
): LanguageModel {
  const provider = globalThis.AI_SDK_DEFAULT_PROVIDER ?? gateway // like the SDK's lookup of names
  const found = typeof model === 'string' ? provider.languageModel(model) : model
  const transformParams: LanguageModelMiddleware['transformParams'] = async ({ params }) => {
    const prompt = sendable(params.prompt, accepted.types)
    return { ...params, prompt: producer ? prompt : ownPrompt(prompt, found.modelId) }
  }
  const read = async (begin: () => PromiseLike<Streamed>, answer: Answer) => {
    const { stream, ...about } = await begin()
    const reader = stream.getReader()
    const cancel = () => void reader.cancel().catch(() => {})
    stop.addEventListener('abort', cancel) // a model may ignore its signal
    if (stop.aborted) cancel()
    try {
      for (let next = await reader.read(); !next.done; next = await reader.read()) {
        stop.throwIfAborted()
        answer.add(await onPart(next.value))
      }
      stop.throwIfAborted()
    } catch (error) {
      throw modelError(error)
    } finally {
      stop.removeEventListener('abort', cancel)
      cancel()
    }
    return about
  }
  const wrapGenerate = async ({ params, model }: { params: Call; model: Model }) => {
    let prompt = prompts.apply(params.prompt)
    let answer = new Answer()
    let about: Awaited<ReturnType<typeof read>> | undefined
    while (!about) {
      try {
        about = await read(() => startAnswer(model, { ...params, prompt }, retries), answer)
      } catch (error) {
        if (answer.hasContent) throw error
        answer = new Answer()
        if (accepted.reduce(error, mediaTypesIn(prompt))) prompt = sendable(prompt, accepted.types)
        else prompt = await prompts.shorten(error, prompt)
      }
    }
    const { warnings } = answer
    const content = marked(answer.content, producer?.() ?? found.modelId)
    const response = { ...about.response, ...answer.metadata }
    return { ...about, ...answer.end(), content, warnings, response }
  }
  return wrapLanguageModel({ model: found, middleware: { transformParams, wrapGenerate } })
}

/** Begin an answer; retry up to `retries` times after temporary failures. */
export async function startAnswer(model: Model, params: Call, retries: number): Promise<Streamed> {
  const { abortSignal: signal } = params
  for (let number = 0; number < retries; number++) {
    try {
      return await model.doStream(params)
    } catch (error) {
      // A gateway may report with status 500 that a request is too long.
      if (!Object(error).isRetryable || isTooLong(error)) throw error
      const wait = retryDelay(error) ?? FIRST_WAIT * 2 ** number
      await delay(wait, undefined, signal && { signal })
    }
  }
  return model.doStream(params)
}

/** Return the milliseconds of a provider's Retry-After, if below MAX_WAIT. */
function retryDelay(error: unknown): number | undefined {
  const headers = Object(Object(error).responseHeaders ?? Object(error).cause?.responseHeaders)
  const seconds = headers['retry-after']
  const until = Number.isNaN(Number(seconds)) ? Date.parse(seconds) - Date.now() : seconds * 1000
  const wait = Number.parseFloat(headers['retry-after-ms'] ?? until)
  return wait >= 0 && wait < MAX_WAIT ? wait : undefined
}

/** Return the AgentError in an error or its causes, or `model_failed`. */
export function modelError(error: unknown): AgentError {
  const own = causesOf(error).find((cause) => cause instanceof AgentError)
  if (own) return own
  return new AgentError('model_failed', '', describe(error), { cause: error })
}

/** Convert a provider's error value to an Error with its HTTP status. */
export function asError(sent: unknown): Error {
  if (sent instanceof Error) return sent
  const outer = Object(sent)
  const data = outer.error ?? outer
  const { message = '', type, code, param } = data
  // Vercel's gateway puts the provider's status into `param`.
  const { status = Object(param).statusCode ?? code, statusCode = status } = data
  const number = /overloaded/i.test(message) ? 503 : Number(statusCode)
  return new StreamProviderError({
    message,
    type,
    code,
    data,
    ...(number >= 400 && number < 600 && { statusCode: number }),
  })
}

/** An answer from its parts. */
class Answer {
  readonly content: Content[] = []
  warnings: Extract<Part, { type: 'stream-start' }>['warnings'] = []
  metadata: Partial<Extract<Part, { type: 'response-metadata' }>> = {}
  #finish: Extract<Part, { type: 'finish' }> | undefined
  readonly #open = new Map<string, Block>()

  /** Whether the caller may have received content. */
  get hasContent(): boolean {
    return this.content.some((part) => {
      // Anthropic's client sends a `custom` part at the start.
      return 'text' in part ? part.text !== '' : part.type !== 'custom'
    })
  }

  add(part: Part): void {
    switch (part.type) {
      case 'stream-start':
        this.warnings = part.warnings
        break
      case 'response-metadata':
        this.metadata = { ...this.metadata, ...part }
        break
      case 'text-start':
      case 'text-delta':
      case 'text-end':
      case 'reasoning-start':
      case 'reasoning-delta':
      case 'reasoning-end':
        this.#extend(part)
        break
      case 'tool-result':
        if (!part.preliminary) this.content.push(part)
        break
      case 'tool-call':
      case 'tool-approval-request':
      case 'source':
      case 'file':
      case 'reasoning-file':
      case 'custom':
        this.content.push(part)
        break
      case 'finish':
        this.#finish = part
        break
      case 'error':
        throw asError(part.error)
    }
  }

  #extend(part: BlockPart): void {
    const type = part.type.startsWith('text') ? 'text' : 'reasoning'
    const key = `${type} ${part.id}`
    const block: Block = this.#open.get(key) ?? { type, text: '' }
    if (!this.#open.has(key)) this.content.push(block)
    this.#open.set(key, block)
    if ('delta' in part) block.text += part.delta
    if (part.providerMetadata) block.providerMetadata = part.providerMetadata
    if (part.type.endsWith('-end')) this.#open.delete(key)
  }

  /** Return the end of the answer. Throws AgentError if it is incomplete. */
  end(): Extract<Part, { type: 'finish' }> {
    const { unified, raw } = this.#finish?.finishReason ?? {}
    const isOver = raw !== undefined || unified !== 'other'
    if (!this.#finish || !isOver || unified === 'interrupted' || unified === 'error') {
      throw new AgentError('model_failed', '', 'the stream was cut')
    }
    return this.#finish
  }
}
