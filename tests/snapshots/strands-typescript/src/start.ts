// The start of a command that runs turns: its settings and its runtime.

import { AgentError } from './contract.ts'
import type { Runtime } from './runtime.ts'
import { CommandError, readSettings, refuseErrors } from './settings.ts'

/** Return the runtime of this process; refuse to start when `check` finds an error. */
export async function start(): Promise<Runtime> {
  const { Runtime } = await import('./runtime.ts')
  const [settings, findings] = readSettings()
  refuseErrors([...findings, ...(await Runtime.check(settings))])
  if (settings.model === 'offline') {
    console.log('MODEL is not set: the offline model only echoes. See README.md to choose one.')
  }
  const runtime = new Runtime(settings)
  await runtime.open().catch((error) => {
    throw error instanceof AgentError ? new CommandError(error.detail) : error
  })
  return runtime
}
