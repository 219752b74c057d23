// Which model answers: MODEL at Vercel's AI Gateway, or the offline model while MODEL is unset.

import type { LanguageModel } from 'ai'

import type { CoreSettings, Finding } from './harness/index.ts'
import { OfflineModel, vendorEndpoint, vendorFindings, vendorModel } from './harness/vendor.ts'
import type { VendorOptions } from './harness/vendor.ts'

// What to look at when the provider refuses a call, and when it is not reached.
export const CREDENTIALS = 'AI_GATEWAY_API_KEY'
export const ADDRESS = 'any proxy'

// Such as `temperature`.
const OPTIONS: VendorOptions = {}

/** Return the model of these settings. */
export function buildModel(settings: CoreSettings): LanguageModel {
  if (settings.model === 'offline') return new OfflineModel()
  return vendorModel(settings, OPTIONS)
}

/** Return findings about missing or invalid settings of the model. */
export function checkModel(settings: CoreSettings): Finding[] {
  return vendorFindings(settings)
}

/** Return the address of the provider. */
export function modelEndpoint(settings: CoreSettings): string {
  return vendorEndpoint(settings)
}
