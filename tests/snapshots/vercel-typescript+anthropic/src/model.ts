// Which model answers: MODEL at Anthropic, or the offline model while MODEL is unset.

import { createAnthropic } from '@ai-sdk/anthropic'
import { defaultSettingsMiddleware, type LanguageModel, wrapLanguageModel } from 'ai'

import { diagnostic, type Finding } from './findings.ts'
import { OfflineModel } from './offline_model.ts'
import { boundedFetch } from './provider.ts'
import { type CoreSettings, isPlainHttp } from './settings.ts'

// What to look at when the provider refuses a call, and when it is not reached.
export const [CREDENTIALS, ADDRESS] = ['ANTHROPIC_API_KEY', 'ANTHROPIC_BASE_URL']

const MAX_TOKENS = 8192 // of one answer; Anthropic requires a limit

/** The model of this process. */
export function buildModel(settings: CoreSettings): LanguageModel {
  if (settings.model === 'offline') return new OfflineModel()
  const baseURL = `${modelEndpoint(settings)}/v1`
  const anthropic = createAnthropic({ baseURL, fetch: boundedFetch(settings) })
  return wrapLanguageModel({
    model: anthropic(settings.model),
    middleware: defaultSettingsMiddleware({ settings: { maxOutputTokens: MAX_TOKENS } }),
  })
}

/** Return findings about missing or invalid model settings. */
export function checkModel(settings: CoreSettings, _connect = false): Finding[] {
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
