// The settings, commands and capabilities that your answers enabled, in order.

import type { CapabilityClass, Command, Option } from './capability.ts'
import { EFFECT_SETTINGS } from './effects/settings.ts'
import type { CoreSettings, SettingsOf } from './settings.ts'

export const PROJECT = 'my-agent'

/** The settings of the capabilities. */
export const SETTINGS = {
  // In a name conflict, the later group wins.
  ...EFFECT_SETTINGS,
}
export type Settings = CoreSettings & SettingsOf<typeof SETTINGS>

/** Command options; each sets a variable to 1 or to its value. */
export const OPTIONS: Record<'check' | 'serve', Record<string, Option>> = {
  check: {},
  serve: {},
}

export const COMMANDS: Record<string, Command<Settings>> = {
  // A command imports its module when it runs.
  effects: {
    takes: 'COMMAND',
    does: 'list, run or settle effects in stored sessions',
    run: async (args, app) => (await import('./effects/commands.ts')).effects(args, app),
  },
}

/** Import and return the capability classes. A late import keeps `--help` fast. */
export async function loadClasses(): Promise<CapabilityClass[]> {
  return [
    // The first capability closes last.
    (await import('./effects/capability.ts')).Effects,
  ]
}
