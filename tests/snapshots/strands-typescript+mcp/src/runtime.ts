// What the turns of one process share: the model and the sessions, which live in memory.

import type { TurnRequest } from './contract.ts'
import { readServers } from './mcp_servers/file.ts'
import { callServers, McpServers } from './mcp_servers/wiring.ts'
import type { buildModel } from './model.ts'
import { OfflineModel } from './offline_model.ts'
import { InProcess } from './session_store.ts'
import { Sessions } from './sessions.ts'
import { type Diagnostic, type Settings, withoutPassword } from './settings.ts'

/** The model, the sessions, and what the commands report about them. */
export class Runtime {
  /** Whether every caller must send an actor id. */
  readonly actorRequired = false
  /** Whether data of a committed turn is still to be written. */
  readonly isWaiting = false
  readonly retentionNotice = 'Nothing was kept: sessions live in this process.'

  readonly settings: Settings
  readonly sessions: Sessions
  readonly mcpServers: McpServers
  model: ReturnType<typeof buildModel> = new OfflineModel()

  constructor(settings: Settings) {
    this.settings = settings
    this.sessions = new Sessions(settings, new InProcess(settings))
    this.mcpServers = new McpServers(settings)
  }

  /**
   * Return the findings about what the settings and .mcp.json name.
   *
   * With `connect`, each server is called too.
   */
  static async check(settings: Settings, connect = false): Promise<Diagnostic[]> {
    const findings: Diagnostic[] = []
    if (settings.model !== 'offline') {
      const { checkModel } = await import('./model.ts') // it loads the vendor's client
      findings.push(...(await checkModel(settings)))
    }
    findings.push(...readServers(settings)[1])
    const hasErrors = findings.some(({ severity }) => severity === 'error')
    return connect && !hasErrors ? [...findings, ...(await callServers(settings))] : findings
  }

  /** Return what this process will contact, one line each, without passwords. */
  async describeEndpoints(): Promise<string[]> {
    const { model } = this.settings
    let where = 'nothing'
    if (model !== 'offline') {
      const { modelEndpoint } = await import('./model.ts')
      where = withoutPassword(await modelEndpoint(this.settings))
    }
    const lines = [`Model: ${model}, contacts ${where}`, 'Sessions: in this process']
    return [...lines, ...this.mcpServers.describeEndpoints()]
  }

  /** Return further options for the agent of one turn. */
  agentOptions(_request: TurnRequest): object {
    return this.mcpServers.addTools({})
  }

  /** Pass on the messages of a committed turn. */
  record(_request: TurnRequest, _messages: unknown[]): void {}

  /** Make the model, and connect; throws AgentError for what cannot work. */
  async open(): Promise<void> {
    if (this.settings.model !== 'offline') {
      const { buildModel } = await import('./model.ts')
      this.model = buildModel(this.settings)
    }
    await this.mcpServers.open()
  }

  /** Write what is still to be written, and disconnect. */
  async close(): Promise<void> {
    await this.mcpServers.close()
  }
}
