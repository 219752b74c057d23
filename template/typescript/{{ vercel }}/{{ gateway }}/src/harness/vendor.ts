// The vendor-specific part of the owner's module `model`, for Vercel's gateway.

export { OfflineModel } from './echo_model.ts'
export {
  vendorEndpoint,
  vendorFindings,
  vendorModel,
  type VendorOptions,
} from './models/gateway.ts'
