// The settings of effects: they limit the retries, the time and the number of effects.

import { type CoreSettings, integer, type SettingsOf } from '../settings.ts'

export const EFFECT_SETTINGS = {
  effectRetrySeconds: integer(3600, 0, 2_592_000),
  effectTimeoutSeconds: integer(10, 1, 3600),
  maxEffects: integer(64, 1, 10_000),
  maxEffectBytes: integer(65_536, 1, 100_000_000),
}
export type EffectSettings = CoreSettings & SettingsOf<typeof EFFECT_SETTINGS>
