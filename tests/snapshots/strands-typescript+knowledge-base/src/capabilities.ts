// The capabilities of this agent, with their settings and commands. Yours: own_capabilities.ts.

import type { Capability, CapabilityClass, Command, Option } from './capability.ts'
import { AGAINST_OPTIONS, DECLARATION_SETTINGS } from './collections/settings.ts'
import { EXTRACTION_SETTINGS } from './extraction/settings.ts'
import { MEMORY_SETTINGS } from './memory/settings.ts'
import { OWN_CAPABILITIES, OWN_SETTINGS } from './own_capabilities.ts'
import type { CoreSettings, SettingsOf } from './settings.ts'

export const PROJECT = 'my-agent'

/** The settings besides those of the core. */
export const SETTINGS = {
  // If a name occurs twice, the later group wins.
  ...DECLARATION_SETTINGS,
  ...MEMORY_SETTINGS,
  ...EXTRACTION_SETTINGS,
  ...OWN_SETTINGS,
}
export type Settings = CoreSettings & SettingsOf<typeof SETTINGS>

/** Options of commands, each of which sets a variable: to 1, or to the value that it takes. */
export const OPTIONS: Record<'check' | 'serve', Record<string, Option>> = {
  check: AGAINST_OPTIONS,
  serve: {},
}

export const COMMANDS: Record<string, Command> = {
  // Each module is loaded when its command runs.
  forget: {
    takes: '--actor ID [--json]',
    does: "erase an actor's sessions, events and records",
    run: async (args, load) => (await import('./memory/commands.ts')).forget(args, load),
  },
  iam: {
    takes: '[--erasure] [--save]',
    does: "print the policy that the agent's role needs on AWS",
    run: async (args, load) => (await import('./memory/commands.ts')).iam(args, load),
  },
}

/** Make the capabilities. */
export async function makeCapabilities(settings: Settings): Promise<Capability[]> {
  const classes: CapabilityClass[] = [
    // Each is made with those before it; the first is closed last.
    (await import('./collections/capability.ts')).Declarations,
    (await import('./memory/long_term.ts')).LongTermMemory,
    (await import('./extraction/capability.ts')).Extraction,
    (await import('./collections/state.ts')).EarlierTurns,
    (await import('./memory/session.ts')).RecordedSessions,
    ...OWN_CAPABILITIES,
  ]
  const capabilities: Capability[] = []
  for (const Class of classes) capabilities.push(new Class(settings as never, [...capabilities]))
  return capabilities
}
