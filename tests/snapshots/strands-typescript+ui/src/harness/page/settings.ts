// The setting of the page, and the option of `serve` that turns the page on.

import { type CoreSettings, integer, type SettingsOf } from '../settings.ts'

export const PAGE_SETTINGS = { ui: integer(0, 0, 1) }

export type PageSettings = CoreSettings & SettingsOf<typeof PAGE_SETTINGS>

export const PAGE_OPTIONS = {
  ui: { variable: 'UI', does: 'the same with a page to talk to the agent, as UI=1 does' },
}
