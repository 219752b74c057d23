// Anthropic's models, with cache points: without them Anthropic caches nothing.

import { createAnthropic } from '@ai-sdk/anthropic'
import { defaultSettingsMiddleware, type LanguageModel, wrapLanguageModel } from 'ai'
import type { LanguageModelMiddleware } from 'ai'

import { withTexts } from '../file_parts.ts'
import { diagnostic, type Finding } from '../findings.ts'
import type { CoreSettings } from '../settings.ts'
import { completed, skippingUnknown } from './messages_stream.ts'
import { boundedFetch, checkAddress } from './provider.ts'

/** Options of model calls. */
export type VendorOptions = Parameters<typeof defaultSettingsMiddleware>[0]['settings']

const DEFAULT_ADDRESS = 'https://api.anthropic.com'
const CACHE_POINT = { anthropic: { cacheControl: { type: 'ephemeral' } } }

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

/** Return the model for these settings. */
export function vendorModel(settings: CoreSettings, options: VendorOptions): LanguageModel {
  const baseURL = `${vendorEndpoint(settings)}/v1`
  const anthropic = createAnthropic({ baseURL, fetch: completed(boundedFetch(settings)) })
  const middleware = [defaultSettingsMiddleware({ settings: options }), withTexts, skippingUnknown]
  if (settings.promptCache) middleware.push(caching)
  return wrapLanguageModel({ model: anthropic(settings.model), middleware })
}

/** Return findings about missing or invalid model settings. */
export function vendorFindings(settings: CoreSettings): Finding[] {
  const key = process.env.ANTHROPIC_API_KEY
  const address = {
    variable: 'ANTHROPIC_BASE_URL',
    url: vendorEndpoint(settings),
    example: DEFAULT_ADDRESS,
  }
  const findings = checkAddress(address, key ? 'ANTHROPIC_API_KEY' : '')
  if (key || findings.length > 0) return findings
  return [diagnostic('SET-ANTHROPIC_API_KEY', 'ANTHROPIC_API_KEY is not set: MODEL needs it.')]
}

/** Return the address of the provider. */
export function vendorEndpoint(_settings: CoreSettings): string {
  return (process.env.ANTHROPIC_BASE_URL || DEFAULT_ADDRESS).replace(/\/+$/, '')
}
