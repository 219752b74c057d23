// The settings of the Valkey session store.

import { integer, type SettingsOf } from '../settings.ts'
import type { StoreSettings } from './settings.ts'

export const VALKEY_SETTINGS = {
  valkeyWaitReplicas: integer(0, 0, 10),
}

export type ValkeySettings = StoreSettings & SettingsOf<typeof VALKEY_SETTINGS>
