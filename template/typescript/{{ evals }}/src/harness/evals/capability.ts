// Lets `check --connect` call the model that judges replies.

import { Capability } from '../capability.ts'
import type { Finding } from '../findings.ts'
import { callModel } from '../models/model_call.ts'
import type { EvalSettings } from './settings.ts'

/** Checks the judge; the command `eval` builds and calls it. */
export class Evals extends Capability<EvalSettings> {
  override ping(): Promise<Finding[]> {
    return callModel(this.load, this.settings, 'JUDGE_MODEL', this.settings.judgeModel)
  }
}
