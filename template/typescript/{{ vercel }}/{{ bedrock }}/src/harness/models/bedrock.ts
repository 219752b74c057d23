// The client of Amazon Bedrock: checks of its streams, cache points, and the guardrail.

import { createAmazonBedrock } from '@ai-sdk/amazon-bedrock'
import { fromNodeProviderChain } from '@aws-sdk/credential-providers'
import { defaultSettingsMiddleware, type LanguageModel } from 'ai'
import { type LanguageModelMiddleware, wrapLanguageModel } from 'ai'

import { AgentError, isBlank } from '../contract.ts'
import type { Part } from '../echo_model.ts'
import { withTexts } from '../file_parts.ts'
import { diagnostic, type Finding } from '../findings.ts'
import type { CoreSettings } from '../settings.ts'
import { boundedFetch } from './provider.ts'

/** Options of model calls. */
export type VendorOptions = Parameters<typeof defaultSettingsMiddleware>[0]['settings']

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

/** Set cache points after the system prompt and the prompt: later memories change each turn. */
const caching: LanguageModelMiddleware = {
  async transformParams({ params }) {
    const prompt = structuredClone(params.prompt)
    const system = prompt[0]
    const last = prompt.at(-1)
    if (system?.role === 'system') system.providerOptions = CACHE_POINT
    const parts = last?.role === 'user' || last?.role === 'tool' ? last.content : []
    const point = last?.role === 'user' ? parts[0] : parts.at(-1)
    if (point) point.providerOptions = CACHE_POINT
    return { ...params, prompt }
  },
}

/** Drop calls of Bedrock's own tools; throw AgentError for arguments that the client drops. */
const checkingCalls: LanguageModelMiddleware = {
  async transformParams({ params }) {
    return { ...params, includeRawChunks: true }
  },
  async wrapStream({ doStream }) {
    const { stream, ...rest } = await doStream()
    const calls = new RawCalls()
    const known = new TransformStream<Part, Part>({
      transform(part, controller) {
        if (part.type === 'raw') return calls.read(Object(part.rawValue))
        if (part.type === 'tool-call' && calls.serverIds.has(part.toolCallId)) return
        if (part.type === 'error' && isServerResult(part.error)) return
        controller.enqueue(part)
      },
    })
    return { ...rest, stream: stream.pipeThrough(known) }
  },
}

/** The calls in the raw events of Bedrock. */
class RawCalls {
  /** The ids of calls of Bedrock's own tools: the client mistakes them for the agent's tools. */
  readonly serverIds = new Set<unknown>()
  readonly #open = new Set<unknown>()
  readonly #withoutArguments = new Set<unknown>() // indexes of calls without arguments

  /** Throw AgentError for arguments that may belong to another call. */
  read({ contentBlockStart: start, contentBlockDelta: part, contentBlockStop: stop }: Raw): void {
    const use = start?.start?.toolUse
    const index = (start ?? part ?? stop)?.contentBlockIndex
    if (use) this.#open.add(index)
    if (use?.type === 'server_tool_use') {
      this.serverIds.add(use.toolUseId)
    } else if (use) {
      // Later arguments of the first call would mix with the arguments of this call.
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

/** Return whether the client failed on a result of Bedrock's own tools. */
function isServerResult(error: unknown): boolean {
  const { contentBlockDelta } = Object(Object(error).value)
  return 'toolResult' in Object(contentBlockDelta?.delta)
}

/** Return the options for GUARDRAIL_ID and GUARDRAIL_VERSION. Throws Error for invalid values. */
function readGuardrail() {
  const { GUARDRAIL_ID: id = '', GUARDRAIL_VERSION: version = '' } = process.env
  if (!GUARDRAIL.test(`${id} ${version}`)) throw new Error(GUARDRAIL_FORM)
  const guardrail = { guardrailIdentifier: id, guardrailVersion: version, trace: 'enabled' }
  return id.trim() ? { amazonBedrock: { guardrailConfig: guardrail } } : {}
}

/** Return the model for these settings. Throws Error for an invalid guardrail. */
export function vendorModel(settings: CoreSettings, options: VendorOptions): LanguageModel {
  // The chain supports profiles and roles; the client's default supports only two variables.
  const credentialProvider = fromNodeProviderChain()
  const fetch = boundedFetch(settings)
  const bedrock = createAmazonBedrock({ region: region(), credentialProvider, fetch })
  const guardrail = { providerOptions: readGuardrail() }
  const middleware = [
    defaultSettingsMiddleware({ settings: options }),
    defaultSettingsMiddleware({ settings: guardrail }),
    withTexts,
    checkingCalls,
  ]
  const isCached = settings.promptCache > 0 && /claude|anthropic/.test(settings.model)
  if (isCached) middleware.push(caching) // other models reject cache points
  return wrapLanguageModel({ model: bedrock(settings.model), middleware })
}

/** Return findings about missing or invalid model settings. */
export function vendorFindings(settings: CoreSettings): Finding[] {
  const hint = 'AWS_REGION is not set: MODEL needs it, for example us-east-1.'
  if (!region()) return [diagnostic('SET-AWS_REGION', hint)]
  try {
    vendorModel(settings, {})
    return []
  } catch (error) {
    return [diagnostic('SET-AWS', `MODEL cannot use Bedrock: ${(error as Error).message}`)]
  }
}

/** Return the address of the provider. */
export function vendorEndpoint(_settings: CoreSettings): string {
  const { AWS_ENDPOINT_URL_BEDROCK_RUNTIME, AWS_ENDPOINT_URL } = process.env
  const url = AWS_ENDPOINT_URL_BEDROCK_RUNTIME || AWS_ENDPOINT_URL
  return url || `https://bedrock-runtime.${region()}.amazonaws.com`
}

function region(): string {
  return process.env.AWS_REGION || process.env.AWS_DEFAULT_REGION || ''
}
