// The capabilities of the answers, with their settings and commands.

import type { CapabilityClass, Command, Option } from './capability.ts'
import { FALLBACK_SETTINGS } from './fallback/settings.ts'
import type { CoreSettings, SettingsOf } from './settings.ts'

export const PROJECT = 'my-agent'

/** The settings of the capabilities. */
export const SETTINGS = {
  // If a name occurs twice, the later group wins.
  ...FALLBACK_SETTINGS,
}
export type Settings = CoreSettings & SettingsOf<typeof SETTINGS>

/** Options of commands, each of which sets a variable: to 1, or to the value that it takes. */
export const OPTIONS: Record<'check' | 'serve', Record<string, Option>> = {
  check: {},
  serve: {},
}

export const COMMANDS: Record<string, Command<Settings>> = {
  // Each module is loaded when its command runs.
}

/** Return the classes of the capabilities; each is made with those before it. */
export async function loadClasses(): Promise<CapabilityClass[]> {
  return [
    // The first is closed last.
    (await import('./fallback/capability.ts')).Fallback,
  ]
}
