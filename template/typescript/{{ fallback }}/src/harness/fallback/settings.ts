// The setting of the second model.

import { integer, string } from '../settings.ts'

export const FALLBACK_SETTINGS = {
  /** Which model answers where MODEL fails. */
  modelFallback: string('(?!offline$).+', 'the id of a model'),
  /** How long MODEL has for its first content. */
  fallbackSeconds: integer(120, 1, 86_400),
}
