// The setting of the second model.

import { text } from '../settings.ts'

export const FALLBACK_SETTINGS = {
  /** Which model answers where MODEL fails. */
  modelFallback: text('', '(?!offline$).+', 'the id of a model'),
}
