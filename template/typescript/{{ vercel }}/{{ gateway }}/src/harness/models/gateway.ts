// Models over Vercel's AI Gateway.

import { createGateway, defaultSettingsMiddleware, type LanguageModel } from 'ai'
import { wrapLanguageModel } from 'ai'

import { withTexts } from '../file_parts.ts'
import { diagnostic, type Finding } from '../findings.ts'
import type { CoreSettings } from '../settings.ts'
import { boundedFetch } from './provider.ts'

/** Options of model calls. */
export type VendorOptions = Parameters<typeof defaultSettingsMiddleware>[0]['settings']

// The gateway adds cache points if a vendor needs them.
const CACHING = { providerOptions: { gateway: { caching: 'auto' } } }

/** Return the model for these settings. */
export function vendorModel(settings: CoreSettings, options: VendorOptions): LanguageModel {
  const gateway = createGateway({
    baseURL: vendorEndpoint(settings),
    fetch: boundedFetch(settings),
  })
  const middleware = [defaultSettingsMiddleware({ settings: options }), withTexts]
  if (settings.promptCache) middleware.push(defaultSettingsMiddleware({ settings: CACHING }))
  return wrapLanguageModel({ model: gateway(settings.model), middleware })
}

/** Return findings about missing or invalid model settings. */
export function vendorFindings(_settings: CoreSettings): Finding[] {
  if (process.env.AI_GATEWAY_API_KEY) return []
  return [diagnostic('SET-AI_GATEWAY_API_KEY', 'AI_GATEWAY_API_KEY is not set: MODEL needs it.')]
}

/** Return the address of the provider. */
export function vendorEndpoint(_settings: CoreSettings): string {
  return 'https://ai-gateway.vercel.sh/v4/ai'
}
