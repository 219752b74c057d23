// The settings of evals.

import { type CoreSettings, type SettingsOf, string } from '../settings.ts'

export const EVAL_SETTINGS = {
  judgeModel: string(), // says whether a reply is as a sentence says
}

export type EvalSettings = CoreSettings & SettingsOf<typeof EVAL_SETTINGS>
