// The settings, commands and capabilities that your answers enabled, in order.

import type { CapabilityClass, Command, Option } from './capability.ts'
import { AGAINST_OPTIONS, DECLARATION_SETTINGS } from './collections/settings.ts'
import { EXTRACTION_SETTINGS } from './extraction/settings.ts'
import { MEMORY_SETTINGS } from './memory/settings.ts'
import { STORE_SETTINGS } from './store/settings.ts'
import { VALKEY_SETTINGS } from './store/valkey_settings.ts'
import type { CoreSettings, SettingsOf } from './settings.ts'

export const PROJECT = 'my-agent'

/** The settings of the capabilities. */
export const SETTINGS = {
  // In a name conflict, the later group wins.
  ...DECLARATION_SETTINGS,
  ...STORE_SETTINGS,
  ...VALKEY_SETTINGS,
  ...MEMORY_SETTINGS,
  ...EXTRACTION_SETTINGS,
}
export type Settings = CoreSettings & SettingsOf<typeof SETTINGS>

/** Command options; each sets a variable to 1 or to its value. */
export const OPTIONS: Record<'check' | 'serve', Record<string, Option>> = {
  check: AGAINST_OPTIONS,
  serve: {},
}

export const COMMANDS: Record<string, Command<Settings>> = {
  // A command imports its module when it runs.
  sessions: {
    takes: 'COMMAND',
    does: 'list, show, restore, copy, sweep or end stored sessions',
    run: async (args, app) => {
      const { sessions } = await import('./store/commands.ts')
      await sessions(args, () => app.loadCapabilities())
    },
  },
  'erase-project': {
    takes: '[--yes NAME]',
    does: 'erase all data of this project; docs/erasure.md describes --unshared COLLECTION',
    run: async (args, app) => {
      const { eraseProject } = await import('./collections/commands.ts')
      await eraseProject(args, () => app.loadCapabilities())
    },
  },
  forget: {
    takes: '--actor ID [--json]',
    does: "erase an actor's sessions, events and records",
    run: async (args, app) => {
      const { forget } = await import('./memory/commands.ts')
      await forget(args, () => app.loadCapabilities())
    },
  },
  iam: {
    takes: '[--erasure] [--save]',
    does: "print the policy that the agent's role needs on AWS",
    run: async (args, app) => {
      const { iam } = await import('./memory/commands.ts')
      await iam(args, () => app.loadCapabilities())
    },
  },
}

/** Import and return the capability classes. A late import keeps `--help` fast. */
export async function loadClasses(): Promise<CapabilityClass[]> {
  return [
    // The first capability closes last.
    (await import('./collections/capability.ts')).Declarations,
    (await import('./store/capability.ts')).Store,
    (await import('./memory/long_term.ts')).LongTermMemory,
    (await import('./extraction/capability.ts')).Extraction,
    (await import('./memory/session_erasure.ts')).SessionErasure,
    (await import('./collections/state.ts')).EarlierTurns,
  ]
}
