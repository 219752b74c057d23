// The vendor-specific part of the owner's module `model`, for Anthropic.

export { OfflineModel } from './echo_model.ts'
export {
  vendorEndpoint,
  vendorFindings,
  vendorModel,
  type VendorOptions,
} from './models/anthropic.ts'
