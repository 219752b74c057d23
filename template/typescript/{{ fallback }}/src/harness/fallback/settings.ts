// The settings of the fallback model.

import { type CoreSettings, integer, type SettingsOf, string } from '../settings.ts'

export const FALLBACK_SETTINGS = {
  /** The model that answers if MODEL fails. */
  modelFallback: string('(?!offline$).+', 'the id of a model'),
  /** The time limit of MODEL for its first content. */
  fallbackSeconds: integer(120, 1, 86_400),
}

export type FallbackSettings = CoreSettings & SettingsOf<typeof FALLBACK_SETTINGS>
