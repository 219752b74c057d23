// Which model answers: MODEL at Anthropic, or the offline model while MODEL is unset.

import type { Model } from '@strands-agents/sdk'

import type { CoreSettings, Finding } from './harness/index.ts'
import { OfflineModel, vendorEndpoint, vendorFindings, vendorModel } from './harness/vendor.ts'
import type { VendorOptions } from './harness/vendor.ts'

// Settings to check when the provider refuses a call, and when it cannot be reached.
export const CREDENTIALS = 'ANTHROPIC_API_KEY'
export const ADDRESS = 'ANTHROPIC_BASE_URL'

// Anthropic requires a limit for answers. `temperature`, for example, is another option.
const OPTIONS: VendorOptions = { maxTokens: 8192 }

/** Return the model for these settings. */
export function buildModel(settings: CoreSettings): Model {
  if (settings.model === 'offline') return new OfflineModel()
  return vendorModel(settings, OPTIONS)
}

/** Return findings about missing or invalid model settings. */
export function checkModel(settings: CoreSettings): Finding[] {
  return vendorFindings(settings)
}

/** Return the address of the provider. */
export function modelEndpoint(settings: CoreSettings): string {
  return vendorEndpoint(settings)
}
