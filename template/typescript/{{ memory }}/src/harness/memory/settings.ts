// The settings of long-term memory.

import type { DeclarationSettings } from '../collections/settings.ts'
import { integer, type SettingsOf, string } from '../settings.ts'

const PROJECT_ID = '[a-z0-9][a-z0-9_-]{0,63}'

export const MEMORY_SETTINGS = {
  recallTimeoutSeconds: integer(2, 1, 60),
  recallOverfetch: integer(4, 1, 100),
  addMemoryTool: integer(0, 0, 1),
  // The values that AgentCore Memory allows for a namespace variable.
  projectId: string(PROJECT_ID, `text that matches ${PROJECT_ID}`, null),
}

export type MemorySettings = DeclarationSettings & SettingsOf<typeof MEMORY_SETTINGS>
