// The settings of compaction.

import { integer, string } from '../settings.ts'

export const COMPACTION_SETTINGS = {
  /** The summary model; '' means MODEL. */
  compactionModel: string(),
  /** The time limit of a summary. */
  compactionTimeoutSeconds: integer(30, 1, 86_400),
}
