// The settings of evals.

import { type CoreSettings, type SettingsOf, string } from '../settings.ts'

export const EVAL_SETTINGS = {
  judgeModel: string(), // judges replies (`judge` in a case)
}

export type EvalSettings = CoreSettings & SettingsOf<typeof EVAL_SETTINGS>
