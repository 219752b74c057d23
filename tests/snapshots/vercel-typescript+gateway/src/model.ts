// Which model answers: MODEL at Vercel's AI Gateway, or the offline model while MODEL is unset.

import { createGateway, defaultSettingsMiddleware, type LanguageModel } from 'ai'
import { wrapLanguageModel } from 'ai'

import { diagnostic, type Finding } from './harness/findings.ts'
import { OfflineModel } from './harness/echo_model.ts'
import { boundedFetch } from './harness/models/provider.ts'
import type { CoreSettings } from './harness/settings.ts'

// What to look at when the provider refuses a call, and when it is not reached.
export const [CREDENTIALS, ADDRESS] = ['AI_GATEWAY_API_KEY', 'any proxy']

/** The model of this process. */
export function buildModel(settings: CoreSettings): LanguageModel {
  if (settings.model === 'offline') return new OfflineModel()
  const [baseURL, fetch] = [modelEndpoint(settings), boundedFetch(settings)]
  const model = createGateway({ baseURL, fetch })(settings.model)
  if (!settings.promptCache) return model
  // The gateway adds cache points where a vendor needs them.
  const providerOptions = { gateway: { caching: 'auto' } }
  const middleware = defaultSettingsMiddleware({ settings: { providerOptions } })
  return wrapLanguageModel({ model, middleware })
}

/** Return findings about missing or invalid model settings. */
export function checkModel(_settings: CoreSettings): Finding[] {
  if (process.env.AI_GATEWAY_API_KEY) return []
  return [diagnostic('SET-AI_GATEWAY_API_KEY', 'AI_GATEWAY_API_KEY is not set: MODEL needs it.')]
}

/** Where the model is reached. */
export function modelEndpoint(_settings: CoreSettings): string {
  return 'https://ai-gateway.vercel.sh/v4/ai'
}
