// The settings of the fallback model.

import { integer, string } from '../settings.ts'

export const FALLBACK_SETTINGS = {
  /** The model that answers if MODEL fails. */
  modelFallback: string('(?!offline$).+', 'the id of a model'),
  /** The time limit of MODEL for its first content. */
  fallbackSeconds: integer(120, 1, 86_400),
}
