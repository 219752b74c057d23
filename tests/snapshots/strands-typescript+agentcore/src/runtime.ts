// What the turns of one process share: the model, the sessions and long-term memory.

import { secretRefs } from './collections/backends.ts'
import { checkProject, loadProject, type Project } from './collections/check.ts'
import { SecretError, Secrets } from './collections/secrets.ts'
import { AgentError, type TurnRequest } from './contract.ts'
import { agentOptions, record, warmUp } from './memory/adapter.ts'
import { checkMemory, checkResources } from './memory/check.ts'
import { LATER, type Report } from './memory/erase.ts'
import { LongTermMemory } from './memory/wiring.ts'
import type { buildModel } from './model.ts'
import { OfflineModel } from './offline_model.ts'
import { InProcess } from './session_store.ts'
import { Sessions } from './sessions.ts'
import { type Diagnostic, type Settings, withoutPassword } from './settings.ts'

/** The model, the collections of the agent, and what the commands report about them. */
export class Runtime {
  /** Whether every caller must send an actor id. */
  readonly actorRequired: boolean
  readonly settings: Settings
  readonly project: Project
  readonly longTerm: LongTermMemory
  readonly sessions: Sessions
  model: ReturnType<typeof buildModel> = new OfflineModel()
  readonly #secrets: Secrets

  /** Run `check` first: invalid files make this throw arbitrary errors. */
  constructor(settings: Settings) {
    this.settings = settings
    this.project = loadProject('.', settings.agentId)
    this.#secrets = new Secrets(settings)
    this.longTerm = new LongTermMemory(settings, this.project, this.#secrets)
    this.actorRequired = this.longTerm.actorRequired
    this.sessions = new Sessions(settings, new InProcess(settings))
  }

  /**
   * Return the findings about what the settings and the files name.
   *
   * With `connect`, each store and service in use is called too.
   */
  static async check(settings: Settings, connect = false): Promise<Diagnostic[]> {
    const findings: Diagnostic[] = []
    if (settings.model !== 'offline') {
      const { checkModel } = await import('./model.ts') // it loads the vendor's client
      findings.push(...(await checkModel(settings)))
    }
    findings.push(...checkProject('.', settings.agentId))
    const hasErrors = () => findings.some(({ severity }) => severity === 'error')
    if (!hasErrors()) findings.push(...checkMemory('.', settings))
    if (connect && !hasErrors()) findings.push(...(await callServices(settings)))
    return findings
  }

  /** Whether data of a committed turn is still to be written. */
  get isWaiting(): boolean {
    return this.longTerm.isWaiting
  }

  /** What was kept of a session, for whoever leaves it. */
  get retentionNotice(): string {
    const recorded = this.longTerm.retentionNotice
    if (recorded) return `Sessions live in this process.${recorded}`
    return 'Nothing was kept: sessions live in this process.'
  }

  /** Return what this process will contact, one line each, without passwords. */
  async describeEndpoints(): Promise<string[]> {
    const { model } = this.settings
    let where = 'nothing'
    if (model !== 'offline') {
      const { modelEndpoint } = await import('./model.ts')
      where = withoutPassword(await modelEndpoint(this.settings))
    }
    const lines = [`Model: ${model}, contacts ${where}`]
    lines.push('Sessions: in this process')
    return [...lines, ...this.longTerm.describeEndpoints()]
  }

  /** Return further options for the agent of one turn. Throws AgentError. */
  agentOptions(request: TurnRequest): object {
    const turn = this.longTerm.begin(request)
    return agentOptions(this.longTerm, turn, this.settings, this.model)
  }

  /** Pass on the messages of a committed turn. */
  record(request: TurnRequest, messages: unknown[]): void {
    record(this.longTerm, request, messages, this.model)
  }

  /** End an actor's sessions; `candidates` are tried where the store cannot list them. */
  async eraseSessions(report: Report, _candidates: string[]): Promise<void> {
    report.notes.push('no session store was searched: sessions live in the process', LATER)
  }

  /** Make the model, and read the secrets that turns will need; throws AgentError. */
  async open(): Promise<void> {
    const isOffline = this.settings.model === 'offline'
    if (!isOffline) {
      const { buildModel } = await import('./model.ts')
      this.model = buildModel(this.settings)
    }
    const refs = isOffline ? [] : this.project.used().flatMap(({ backend }) => secretRefs(backend))
    try {
      for (const ref of refs) await this.#secrets.get(ref)
    } catch (error) {
      if (!(error instanceof SecretError)) throw error
      throw new AgentError('store_unavailable', '', error.message)
    }
    await this.longTerm.open(warmUp)
  }

  /** Write what is still to be written, and disconnect. */
  async close(): Promise<void> {
    await this.longTerm.close(this.settings.shutdownGraceSeconds)
  }
}

async function callServices(settings: Settings): Promise<Diagnostic[]> {
  const runtime = new Runtime(settings)
  const findings: Diagnostic[] = []
  try {
    findings.push(...(await checkResources(runtime.longTerm, settings)))
  } finally {
    await runtime.close()
  }
  return findings
}
