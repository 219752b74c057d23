// The settings of background turns.

import { integer, type CoreSettings, type SettingsOf } from '../settings.ts'

export const BACKGROUND_SETTINGS = {
  maxBackgroundTurns: integer(32, 1, 100_000),
  maxBackgroundTurnsPerActor: integer(4, 1, 100_000),
  maxEventBytes: integer(1_048_576, 1024, 1_000_000_000),
  eventSeconds: integer(300, 1, 86_400),
  maxReaders: integer(16, 1, 10_000),
}

export type BackgroundSettings = CoreSettings & SettingsOf<typeof BACKGROUND_SETTINGS>
