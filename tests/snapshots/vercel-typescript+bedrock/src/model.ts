// Which model answers: MODEL on Amazon Bedrock, or the offline model while MODEL is unset.

import { createAmazonBedrock } from '@ai-sdk/amazon-bedrock'
import { fromNodeProviderChain } from '@aws-sdk/credential-providers'
import { defaultSettingsMiddleware, type LanguageModel } from 'ai'
import { type LanguageModelMiddleware, wrapLanguageModel } from 'ai'

import { AgentError, isBlank } from './harness/contract.ts'
import { diagnostic, type Finding } from './harness/findings.ts'
import { OfflineModel, type Part } from './harness/echo_model.ts'
import { boundedFetch } from './harness/models/provider.ts'
import type { CoreSettings } from './harness/settings.ts'

// What to look at when the provider refuses a call, and when it is not reached.
export const [CREDENTIALS, ADDRESS] = ['the AWS credentials', 'AWS_REGION']
const GUARDRAIL = /^( *|(arn:[a-z0-9:-]+:guardrail\/)?[a-z0-9]+ (DRAFT|[1-9][0-9]{0,7}))$/
const GUARDRAIL_FORM = 'GUARDRAIL_ID must be an id or ARN, GUARDRAIL_VERSION a number or DRAFT'

type Raw = {
  contentBlockStart?: {
    contentBlockIndex?: number
    start?: { toolUse?: { type?: string; toolUseId?: string } }
  }
  contentBlockDelta?: { contentBlockIndex?: number; delta?: { toolUse?: { input?: string } } }
  contentBlockStop?: { contentBlockIndex?: number }
}

const CACHE_POINT = { bedrock: { cachePoint: { type: 'default' } } }

/** Cache points behind the system prompt and the prompt: memories behind it change each turn. */
const caching: LanguageModelMiddleware = {
  async transformParams({ params }) {
    const prompt = structuredClone(params.prompt)
    const [system, last] = [prompt[0], prompt.at(-1)]
    if (system?.role === 'system') system.providerOptions = CACHE_POINT
    const parts = last?.role === 'user' || last?.role === 'tool' ? last.content : []
    const point = last?.role === 'user' ? parts[0] : parts.at(-1)
    if (point) point.providerOptions = CACHE_POINT
    return { ...params, prompt }
  },
}

/** Leave out the tools that Bedrock itself runs, and refuse arguments that the client drops. */
const checkingCalls: LanguageModelMiddleware = {
  async transformParams({ params }) {
    return { ...params, includeRawChunks: true }
  },
  async wrapStream({ doStream }) {
    const { stream, ...about } = await doStream()
    const calls = new RawCalls()
    const known = new TransformStream<Part, Part>({
      transform(part, controller) {
        if (part.type === 'raw') return calls.read(Object(part.rawValue))
        if (part.type === 'tool-call' && calls.serverIds.has(part.toolCallId)) return
        if (part.type === 'error' && isServerResult(part.error)) return
        controller.enqueue(part)
      },
    })
    return { ...about, stream: stream.pipeThrough(known) }
  },
}

/** The calls of an answer, as Bedrock sends them. */
class RawCalls {
  /** Those of Bedrock's own tools: the client mistakes them for yours. */
  readonly serverIds = new Set<unknown>()
  readonly #open = new Set<unknown>()
  readonly #withoutArguments = new Set<unknown>() // the indexes of such calls

  /** Throws AgentError. */
  read({ contentBlockStart: start, contentBlockDelta: part, contentBlockStop: stop }: Raw): void {
    const use = start?.start?.toolUse
    const index = (start ?? part ?? stop)?.contentBlockIndex
    if (use) this.#open.add(index)
    if (use?.type === 'server_tool_use') {
      this.serverIds.add(use.toolUseId)
    } else if (use) {
      // Its arguments may follow, mixed with those of this call.
      const isUnclear = this.#withoutArguments.has(index)
      if (isUnclear) throw new AgentError('model_failed', '', 'two calls have one index')
      this.#withoutArguments.add(index)
    }
    if (stop) this.#open.delete(index)
    const text = part?.delta?.toolUse?.input ?? ''
    if (text && !this.#open.has(index)) {
      throw new AgentError('model_failed', '', 'arguments outside of a call')
    }
    if (!isBlank(text)) this.#withoutArguments.delete(index)
  }
}

/** Whether an error says that the client does not know the result of such a tool. */
function isServerResult(error: unknown): boolean {
  const { contentBlockDelta } = Object(Object(error).value)
  return 'toolResult' in Object(contentBlockDelta?.delta)
}

/** The model of this process. */
export function buildModel(settings: CoreSettings): LanguageModel {
  return settings.model === 'offline' ? new OfflineModel() : converse(settings)
}

function converse(settings: CoreSettings) {
  // The chain knows profiles and roles; the client's own way knows two variables.
  const credentialProvider = fromNodeProviderChain()
  const fetch = boundedFetch(settings)
  const bedrock = createAmazonBedrock({ region: region(), credentialProvider, fetch })
  const { GUARDRAIL_ID: id = '', GUARDRAIL_VERSION: version = '' } = process.env
  if (!GUARDRAIL.test(`${id} ${version}`)) throw new Error(GUARDRAIL_FORM)
  const guardrail = { guardrailIdentifier: id, guardrailVersion: version, trace: 'enabled' }
  const providerOptions = id.trim() ? { amazonBedrock: { guardrailConfig: guardrail } } : {}
  const isCached = settings.promptCache > 0 && /claude|anthropic/.test(settings.model)
  const limits = defaultSettingsMiddleware({ settings: { providerOptions } })
  const middleware = [limits, checkingCalls]
  if (isCached) middleware.push(caching) // others refuse it
  return wrapLanguageModel({ model: bedrock(settings.model), middleware })
}

/** Return findings about missing or invalid model settings. */
export function checkModel(settings: CoreSettings): Finding[] {
  const hint = 'AWS_REGION is not set: MODEL needs it, as in us-east-1.'
  if (!region()) return [diagnostic('SET-AWS_REGION', hint)]
  try {
    converse(settings)
    return []
  } catch (error) {
    return [diagnostic('SET-AWS', `MODEL cannot use Bedrock: ${(error as Error).message}`)]
  }
}

/** Where the model is reached. */
export function modelEndpoint(_settings: CoreSettings): string {
  const { AWS_ENDPOINT_URL_BEDROCK_RUNTIME, AWS_ENDPOINT_URL } = process.env
  const own = AWS_ENDPOINT_URL_BEDROCK_RUNTIME || AWS_ENDPOINT_URL
  return own || `https://bedrock-runtime.${region()}.amazonaws.com`
}

function region(): string {
  return process.env.AWS_REGION || process.env.AWS_DEFAULT_REGION || ''
}
