// The settings of the session store.

import type { DeclarationSettings } from '../collections/settings.ts'
import { integer, type SettingsOf } from '../settings.ts'

export const STORE_SETTINGS = {
  storeTimeoutSeconds: integer(3, 1, 60),
  checkpoints: integer(0, 0, 1000),
}

export type StoreSettings = DeclarationSettings & SettingsOf<typeof STORE_SETTINGS>
