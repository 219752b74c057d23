// What the turns of one process share: the model, the sessions and long-term memory.

import { secretRefs } from './collections/backends.ts'
import { checkProject, loadProject, type Project } from './collections/check.ts'
import type { Collection } from './collections/models.ts'
import { SecretError, Secrets, unsetVariables } from './collections/secrets.ts'
import { AgentError, type TurnRequest } from './contract.ts'
import { agentOptions, record, warmUp } from './memory/adapter.ts'
import { checkMemory, checkResources } from './memory/check.ts'
import { LATER, type Report } from './memory/erase.ts'
import { LongTermMemory } from './memory/wiring.ts'
import type { buildModel } from './model.ts'
import { OfflineModel } from './offline_model.ts'
import { InProcess, type SessionStore } from './session_store.ts'
import { Sessions } from './sessions.ts'
import { type Diagnostic, type Settings, withoutPassword } from './settings.ts'
import type { DurableStore } from './store/base.ts'
import { CachedStore } from './store/cached.ts'
import { checkStore } from './store/check.ts'
import { eraseSessions, isForgotten } from './store/erase.ts'
import { openStore } from './store/index.ts'

/** The model, the collections of the agent, and what the commands report about them. */
export class Runtime {
  /** Whether every caller must send an actor id. */
  readonly actorRequired: boolean
  /** The collection that declares where sessions live. */
  readonly collection: Collection | null
  /** null: sessions live in this process. */
  readonly store: DurableStore | null = null
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
    this.collection = this.project.sessionCollections()[0] ?? null
    let sessions: SessionStore = new InProcess(settings)
    if (this.collection && unsetVariables(settings, this.collection).length === 0) {
      const isWritable = this.project.isWritable(this.collection)
      this.store = openStore(this.collection, this.project.agentId, settings, this.#secrets)
      sessions = new CachedStore(settings, this.store, isWritable)
      this.longTerm.recorder.isForgotten = isForgotten.bind(null, this.store)
    }
    const isOfUsers = this.store !== null && this.collection?.scope.lifetime === 'user'
    this.actorRequired = isOfUsers || this.longTerm.actorRequired
    this.sessions = new Sessions(settings, sessions)
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
    const isKept = this.store && this.collection && this.project.isWritable(this.collection)
    if (isKept) return `Its turns are kept: continue with -- --session.${recorded}`
    if (recorded) return `Sessions live in this process.${recorded}`
    if (this.store) return 'Nothing was kept: the session store is read-only.'
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
    if (this.collection && this.store) {
      lines.push(`Sessions: ${this.collection.backend.type}, contacts ${this.store.contact}`)
    } else {
      const [missing] = this.collection ? unsetVariables(this.settings, this.collection) : []
      lines.push(`Sessions: in this process${missing ? `, until ${missing} is set` : ''}`)
    }
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
  async eraseSessions(report: Report, candidates: string[]): Promise<void> {
    if (this.store && this.collection) {
      const isWritable = this.project.isWritable(this.collection)
      const erased = await eraseSessions(this.store, isWritable, report.actor, candidates)
      report.sessions = erased.ended.length
      report.could_not.push(...erased.failures)
      report.notes.push(...erased.notes, ...(isWritable ? [] : [LATER]))
      return
    }
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
    await this.store?.close()
  }
}

async function callServices(settings: Settings): Promise<Diagnostic[]> {
  const runtime = new Runtime(settings)
  const findings: Diagnostic[] = []
  try {
    const { project, collection, store } = runtime
    if (collection && store) {
      findings.push(...(await checkStore(store, collection, project.isWritable(collection))))
    }
    findings.push(...(await checkResources(runtime.longTerm, settings)))
  } finally {
    await runtime.close()
  }
  return findings
}
