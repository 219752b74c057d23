// A model that is down.

import { type Call, OfflineModel } from '../src/offline_model.ts'

/** Fails before its first event, with each of the errors; then it answers. */
export class DownModel extends OfflineModel {
  readonly errors: Error[]
  calls = 0

  constructor(...errors: Error[]) {
    super()
    this.errors = errors
  }

  override async doStream(options: Call) {
    this.calls += 1
    const error = this.errors.shift()
    if (error) throw error
    return super.doStream(options)
  }
}
