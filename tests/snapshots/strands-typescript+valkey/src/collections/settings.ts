// The settings of the collections.

import { type CoreSettings, integer, type SettingsOf, text } from '../settings.ts'

export const DECLARATION_SETTINGS = {
  secretCacheSeconds: integer(300, 0, 86_400),
  agentId: text(null), // null: the only file in agents/
}

export type DeclarationSettings = CoreSettings & SettingsOf<typeof DECLARATION_SETTINGS>
