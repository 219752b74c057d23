// The provider's part of `model.ts`.

export { OfflineModel } from './echo_model.ts'
export {
  vendorEndpoint,
  vendorFindings,
  vendorModel,
  type VendorOptions,
} from './models/bedrock.ts'
