// The settings of fact extraction.

import { integer, string } from '../settings.ts'

export const EXTRACTION_SETTINGS = {
  /** The model that extracts facts; '' means MODEL. */
  extractionModel: string(),
  /** Its time limit. */
  extractionTimeoutSeconds: integer(60, 1, 600),
}
