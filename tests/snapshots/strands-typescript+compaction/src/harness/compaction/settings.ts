// The settings of compaction.

import { integer, text } from '../settings.ts'

export const COMPACTION_SETTINGS = {
  /** The model that summarizes; '' means MODEL. */
  compactionModel: text(''),
  /** How long a turn waits for a summary. */
  compactionTimeoutSeconds: integer(30, 1, 86_400),
}
