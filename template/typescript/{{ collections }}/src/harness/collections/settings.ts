// The settings of collections and secrets, and the option `check --against`.

import { type CoreSettings, integer, type SettingsOf, string } from '../settings.ts'

export const DECLARATION_SETTINGS = {
  secretCacheSeconds: integer(300, 0, 86_400),
  agentId: string('.*', '', null), // null: the only agent in agents/
  secretsPrefix: string(), // prepended to paths in AWS Secrets Manager
  checkAgainst: string(), // a Git commit or tag
}

export type DeclarationSettings = CoreSettings & SettingsOf<typeof DECLARATION_SETTINGS>

export const AGAINST_OPTIONS = {
  against: {
    variable: 'CHECK_AGAINST',
    takes: 'REF',
    does: 'also compare the versions of collections with a commit or tag',
  },
}
