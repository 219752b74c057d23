// Which model answers: MODEL at Anthropic, or the offline model while MODEL is unset.

import { createAnthropic } from '@ai-sdk/anthropic'
import { defaultSettingsMiddleware, type LanguageModel, wrapLanguageModel } from 'ai'
import type { LanguageModelMiddleware } from 'ai'

import { diagnostic, type Finding } from './harness/findings.ts'
import { completed, skippingUnknown } from './harness/models/messages_stream.ts'
import { OfflineModel } from './harness/echo_model.ts'
import { boundedFetch } from './harness/models/provider.ts'
import { type CoreSettings, isPlainHttp } from './harness/settings.ts'

// What to look at when the provider refuses a call, and when it is not reached.
export const [CREDENTIALS, ADDRESS] = ['ANTHROPIC_API_KEY', 'ANTHROPIC_BASE_URL']

const MAX_TOKENS = 8192 // of one answer; Anthropic requires a limit
const CACHE_POINT = { anthropic: { cacheControl: { type: 'ephemeral' } } }

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
  const baseURL = `${modelEndpoint(settings)}/v1`
  const anthropic = createAnthropic({ baseURL, fetch: completed(boundedFetch(settings)) })
  const limit = defaultSettingsMiddleware({ settings: { maxOutputTokens: MAX_TOKENS } })
  const middleware = [limit, skippingUnknown]
  if (settings.promptCache) middleware.push(caching)
  return wrapLanguageModel({ model: anthropic(settings.model), middleware })
}

/** Return findings about missing or invalid model settings. */
export function checkModel(settings: CoreSettings): Finding[] {
  if (!/^https?:\/\//i.test(modelEndpoint(settings))) {
    const hint = 'ANTHROPIC_BASE_URL must be an http address, as in https://api.anthropic.com.'
    return [diagnostic('SET-ANTHROPIC_BASE_URL', hint)]
  }
  if (process.env.ANTHROPIC_API_KEY) {
    if (!isPlainHttp(modelEndpoint(settings))) return []
    const hint = 'ANTHROPIC_API_KEY travels over plain http to another host: use https.'
    return [diagnostic('SET-ANTHROPIC_BASE_URL', hint, 'warning')]
  }
  const hint = 'ANTHROPIC_API_KEY is not set: MODEL needs it.'
  return [diagnostic('SET-ANTHROPIC_API_KEY', hint)]
}

/** Where the model is reached. */
export function modelEndpoint(_settings: CoreSettings): string {
  return (process.env.ANTHROPIC_BASE_URL || 'https://api.anthropic.com').replace(/\/+$/, '')
}
