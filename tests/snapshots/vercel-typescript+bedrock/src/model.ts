// Which model answers: MODEL on Amazon Bedrock, or the offline model while MODEL is unset.

import { createAmazonBedrock } from '@ai-sdk/amazon-bedrock'
import { fromNodeProviderChain } from '@aws-sdk/credential-providers'
import { type LanguageModel, type LanguageModelMiddleware, wrapLanguageModel } from 'ai'

import { diagnostic, type Finding } from './findings.ts'
import { OfflineModel } from './offline_model.ts'
import { boundedFetch } from './provider.ts'
import type { CoreSettings } from './settings.ts'

// What to look at when the provider refuses a call, and when it is not reached.
export const [CREDENTIALS, ADDRESS] = ['the AWS credentials', 'AWS_REGION']

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

/** The model of this process. */
export function buildModel(settings: CoreSettings): LanguageModel {
  if (settings.model === 'offline') return new OfflineModel()
  // The chain knows profiles and roles; the client's own way knows two variables.
  const credentialProvider = fromNodeProviderChain()
  const fetch = boundedFetch(settings)
  const bedrock = createAmazonBedrock({ region: region(), credentialProvider, fetch })
  const model = bedrock(settings.model)
  const isCached = settings.promptCache > 0 && /claude|anthropic/.test(settings.model)
  return isCached ? wrapLanguageModel({ model, middleware: caching }) : model // others refuse it
}

/** Return findings about missing or invalid model settings. */
export function checkModel(_settings: CoreSettings): Finding[] {
  if (region()) return []
  const hint = 'AWS_REGION is not set: MODEL needs it, as in us-east-1.'
  return [diagnostic('SET-AWS_REGION', hint)]
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
