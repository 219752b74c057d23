// The settings of compaction.

import { integer, string } from '../settings.ts'

export const COMPACTION_SETTINGS = {
  /** The model that summarizes; '' means MODEL. */
  compactionModel: string(),
  /** How long a turn waits for a summary. */
  compactionTimeoutSeconds: integer(30, 1, 86_400),
}
