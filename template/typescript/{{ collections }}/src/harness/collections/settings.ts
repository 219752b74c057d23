// The settings of the collections, and the option of `check` that sets one.

import { type CoreSettings, integer, type SettingsOf, string } from '../settings.ts'

export const DECLARATION_SETTINGS = {
  secretCacheSeconds: integer(300, 0, 86_400),
  agentId: string('.*', '', null), // null: the only file in agents/
  secretsPrefix: string(), // of paths, where they are names in AWS Secrets Manager
  checkAgainst: string(), // a commit of git
}

export type DeclarationSettings = CoreSettings & SettingsOf<typeof DECLARATION_SETTINGS>

export const AGAINST_OPTIONS = {
  against: {
    variable: 'CHECK_AGAINST',
    takes: 'REF',
    does: 'also compare the versions of collections with a commit or a tag',
  },
}
