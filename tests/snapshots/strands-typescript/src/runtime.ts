// What the turns of one process share: the model and the sessions, which live in memory.

import type { TurnRequest } from './contract.ts'
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
  model: ReturnType<typeof buildModel> = new OfflineModel()

  constructor(settings: Settings) {
    this.settings = settings
    this.sessions = new Sessions(settings, new InProcess(settings))
  }

  /** Return the findings about what the settings name. */
  static async check(settings: Settings): Promise<Diagnostic[]> {
    if (settings.model === 'offline') return []
    const { checkModel } = await import('./model.ts') // it loads the vendor's client
    return checkModel(settings)
  }

  /** Return what this process will contact, one line each, without passwords. */
  async describeEndpoints(): Promise<string[]> {
    const { model } = this.settings
    let where = 'nothing'
    if (model !== 'offline') {
      const { modelEndpoint } = await import('./model.ts')
      where = withoutPassword(await modelEndpoint(this.settings))
    }
    return [`Model: ${model}, contacts ${where}`, 'Sessions: in this process']
  }

  /** Return further options for the agent of one turn. */
  agentOptions(_request: TurnRequest): object {
    return {}
  }

  /** Pass on the messages of a committed turn. */
  record(_request: TurnRequest, _messages: unknown[]): void {}

  /** Make the model, and connect; throws AgentError for what cannot work. */
  async open(): Promise<void> {
    if (this.settings.model !== 'offline') {
      const { buildModel } = await import('./model.ts')
      this.model = buildModel(this.settings)
    }
  }

  /** Write what is still to be written, and disconnect. */
  async close(): Promise<void> {}
}
