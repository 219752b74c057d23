// Which model answers: MODEL on Amazon Bedrock, or the offline model while MODEL is unset.

import type { LanguageModel } from 'ai'

import type { CoreSettings, Finding } from './harness/index.ts'
import { OfflineModel, vendorEndpoint, vendorFindings, vendorModel } from './harness/vendor.ts'
import type { VendorOptions } from './harness/vendor.ts'

// Settings to check when the provider refuses a call, and when it cannot be reached.
export const CREDENTIALS = 'the AWS credentials'
export const ADDRESS = 'AWS_REGION'

// Further options, for example `temperature`.
const OPTIONS: VendorOptions = {}

/** Return the model for these settings. */
export function buildModel(settings: CoreSettings): LanguageModel {
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
