// The settings of extraction.

import { integer, string } from '../settings.ts'

export const EXTRACTION_SETTINGS = {
  /** The model that finds facts; '' means MODEL. */
  extractionModel: string(),
  /** How long it may take. */
  extractionTimeoutSeconds: integer(60, 1, 600),
}
