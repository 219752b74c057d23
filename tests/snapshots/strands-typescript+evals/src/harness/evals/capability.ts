// The model that judges replies, as `check --connect` calls it.

import { Capability } from '../capability.ts'
import type { Finding } from '../findings.ts'
import { callModel } from '../models/model_call.ts'
import type { EvalSettings } from './settings.ts'

/** Changes no turn: the command `eval` makes the judge itself. */
export class Evals extends Capability<EvalSettings> {
  override ping(): Promise<Finding[]> {
    return callModel(this.load, this.settings, 'JUDGE_MODEL', this.settings.judgeModel)
  }
}
