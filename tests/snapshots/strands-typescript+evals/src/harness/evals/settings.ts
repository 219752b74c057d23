// The settings of evals.

import { type CoreSettings, type SettingsOf, text } from '../settings.ts'

export const EVAL_SETTINGS = {
  judgeModel: text(''), // says whether a reply is as a sentence says
}

export type EvalSettings = CoreSettings & SettingsOf<typeof EVAL_SETTINGS>
