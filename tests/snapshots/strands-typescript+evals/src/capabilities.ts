// The capabilities of this agent, with their settings and commands. Yours: own_capabilities.ts.

import type { Capability, CapabilityClass, Command, Option } from './capability.ts'
import { EVAL_SETTINGS } from './evals/settings.ts'
import { OWN_CAPABILITIES, OWN_SETTINGS } from './own_capabilities.ts'
import type { CoreSettings, SettingsOf } from './settings.ts'

export const PROJECT = 'my-agent'

/** The settings besides those of the core. */
export const SETTINGS = {
  // If a name occurs twice, the later group wins.
  ...EVAL_SETTINGS,
  ...OWN_SETTINGS,
}
export type Settings = CoreSettings & SettingsOf<typeof SETTINGS>

/** Options of commands, each of which sets a variable: to 1, or to the value that it takes. */
export const OPTIONS: Record<'check' | 'serve', Record<string, Option>> = {
  check: {},
  serve: {},
}

export const COMMANDS: Record<string, Command> = {
  // Each module is loaded when its command runs.
  eval: {
    takes: '[NAMES] [--repeat N]',
    does: 'try the cases in evals/; docs/evals.md has all options',
    run: async (args) => (await import('./evals/commands.ts')).evaluate(args),
  },
}

/** Make the capabilities. */
export async function makeCapabilities(settings: Settings): Promise<Capability[]> {
  const classes: CapabilityClass[] = [
    // Each is made with those before it; the first is closed last.
    (await import('./evals/capability.ts')).Evals,
    ...OWN_CAPABILITIES,
  ]
  const capabilities: Capability[] = []
  for (const Class of classes) capabilities.push(new Class(settings as never, [...capabilities]))
  return capabilities
}
