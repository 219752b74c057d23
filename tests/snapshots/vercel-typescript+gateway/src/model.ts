// Which model answers: MODEL at Vercel's AI Gateway, or the offline model while MODEL is unset.

import { createGateway, type LanguageModel } from 'ai'

import { diagnostic, type Finding } from './findings.ts'
import { OfflineModel } from './offline_model.ts'
import { boundedFetch } from './provider.ts'
import type { CoreSettings } from './settings.ts'

// What to look at when the provider refuses a call, and when it is not reached.
export const [CREDENTIALS, ADDRESS] = ['AI_GATEWAY_API_KEY', 'any proxy']

/** The model of this process. */
export function buildModel(settings: CoreSettings): LanguageModel {
  if (settings.model === 'offline') return new OfflineModel()
  const [baseURL, fetch] = [modelEndpoint(settings), boundedFetch(settings)]
  return createGateway({ baseURL, fetch })(settings.model)
}

/** Return findings about missing or invalid model settings. */
export function checkModel(_settings: CoreSettings, _connect = false): Finding[] {
  if (process.env.AI_GATEWAY_API_KEY) return []
  return [diagnostic('SET-AI_GATEWAY_API_KEY', 'AI_GATEWAY_API_KEY is not set: MODEL needs it.')]
}

/** Where the model is reached. */
export function modelEndpoint(_settings: CoreSettings): string {
  return 'https://ai-gateway.vercel.sh/v4/ai'
}
