// The settings of MCP servers.

import { type CoreSettings, integer, type SettingsOf, string } from '../settings.ts'

export const MCP_SETTINGS = {
  mcpFile: string('.*', '', '.mcp.json'),
  mcpTimeoutSeconds: integer(30, 1, 3600),
}

export type McpSettings = CoreSettings & SettingsOf<typeof MCP_SETTINGS>
