// What the turns of one process share: a model, and the sessions and memories of the files.

import { AgentError, type Ask } from './contract.ts'
import type { Backend } from './memory/backends.ts'
import { LongTerm } from './memory/long_term.ts'
import { Mirror } from './memory/mirror.ts'
import type { Collection } from './memory/models.ts'
import { type Options, readOptions } from './memory/options.ts'
import { checkProject, loadProject } from './memory/project.ts'
import { agentOptions, prepare, record } from './memory/recalling.ts'
import { Secrets } from './memory/secrets.ts'
import { checkStores, unset } from './memory/starting.ts'
import { Cached, StoredSessions } from './memory/stored.ts'
import { buildBackend, isWritable, keepers } from './memory/stores.ts'
import { buildModel, checkModel, modelEndpoint } from './model.ts'
import { InProcess, Sessions } from './sessions.ts'
import type { Diagnostic, Settings } from './settings.ts'

/** The parts, and what the commands and the turns have to know of them. */
export class Parts {
  /** Whether every caller must name an actor. */
  readonly actorRequired: boolean
  readonly kept: string
  /** null: sessions live in this process. */
  readonly store: Backend | null = null
  /** The one that keeps the sessions. */
  readonly collection: Collection | null

  readonly settings: Settings
  readonly options: Options
  readonly longTerm: LongTerm
  readonly sessions: Sessions
  model: ReturnType<typeof buildModel>
  /** Of further collections. */
  readonly mirrors: readonly Mirror[] = []

  /** Throws anything for files in which `check` finds an error. */
  constructor(settings: Settings) {
    this.settings = settings
    this.model = buildModel(settings)
    const [options] = readOptions()
    const [project, secrets] = [loadProject('.', options.agentId), new Secrets(options)]
    this.options = options
    this.longTerm = new LongTerm(settings, options, project, secrets)
    prepare(this.longTerm)
    this.actorRequired = this.longTerm.actorRequired
    const told = [...this.longTerm.memories].map(([id, { contact }]) => {
      const isHeard = isWritable(project, project.collections.get(id)!)
      return isHeard ? ` What was said goes to ${contact}.` : ''
    })
    const gone = 'Sessions live in this process.'
    this.kept = told.join('') ? [gone, ...told].join('') : `Nothing was kept: s${gone.slice(1)}`
    const [kept = null, ...mirrored] = keepers(project)
    this.collection = kept
    if (kept === null || unset(settings, kept).length > 0) {
      this.sessions = new Sessions(settings, new InProcess(settings))
      return
    }
    const where = [project.agentId, options, secrets] as const
    this.store = buildBackend(kept, ...where)
    this.actorRequired ||= kept.scope.lifetime === 'user'
    const copied = mirrored.filter((it) => isWritable(project, it) && !unset(settings, it).length)
    const most = options.maxSnapshotBytes
    this.mirrors = copied.map((it) => new Mirror(buildBackend(it, ...where), most))
    const role = { isWritable: isWritable(project, kept), mirrors: this.mirrors }
    const back = 'Its turns are kept: --session comes back to it.'
    if (role.isWritable) this.kept = [back, ...told].join('')
    const cached = new Cached(settings, options, this.store, role)
    this.sessions = new StoredSessions(settings, cached)
  }

  /** Whether something of a committed turn is still to be written. */
  get isWaiting(): boolean {
    return this.longTerm.isWaiting || this.mirrors.some((mirror) => mirror.isWaiting)
  }

  /** What is wrong with the environment and the files of these parts. */
  static async check(settings: Settings): Promise<Diagnostic[]> {
    const [options, wrong] = readOptions()
    const found = [...(await checkModel(settings)), ...wrong, ...checkProject('.', options.agentId)]
    for (const one of found) {
      if (one.file === 'environment') continue // and a start shows the messages only
      one.message = `${one.file}:${one.line} ${one.id} ${one.message}`
    }
    const isWrong = found.some(({ severity }) => severity === 'error')
    return isWrong ? found : [...found, ...(await checkStores(settings, options))]
  }

  /** What this process will contact, a line each. */
  async contacts(): Promise<string[]> {
    const model = this.settings.model
    const where = model === 'offline' ? 'nothing' : await modelEndpoint(this.settings)
    const shown = where.replace(/\/\/[^/]*@/, '//') // without a password that the address holds
    const lines = [`Model: ${model}, contacts ${shown}`]
    if (this.collection === null) lines.push('Sessions: in this process')
    else if (this.store === null) {
      const [missing] = unset(this.settings, this.collection)
      lines.push(`Sessions: in this process, until ${missing} is set`)
    } else {
      const { type } = this.collection.backend
      lines.push(`Sessions: ${type}, contacts ${this.store.contact}`)
    }
    const copies = this.mirrors.map((mirror) => `Copies: contacts ${mirror.contact}`)
    return [...lines, ...copies, ...this.longTerm.contacts()]
  }

  /** More options for the agent of one turn. Throws AgentError for who may not have one. */
  agentOptions(ask: Ask): object {
    return agentOptions(this.longTerm, this.longTerm.begin(ask), this.options, this.model)
  }

  /** Hear what a committed turn added. */
  record(ask: Ask, messages: unknown[]): void {
    const turn = this.longTerm.turnOf(ask)
    if (turn) record(this.longTerm, turn, messages, this.model)
  }

  /** Write what waits to be written, and close what is open. */
  async close(): Promise<void> {
    const remembering = this.longTerm.close(this.settings.shutdownGraceSeconds)
    await Promise.all([remembering, ...this.mirrors.map((mirror) => mirror.close())])
    await this.store?.close()
  }
}

/** Do the work of one turn, and throw at once when its time is over or the signal is aborted. */
export async function withinTime<T>(
  parts: Parts,
  signal: AbortSignal,
  work: (stop: AbortSignal) => Promise<T>,
): Promise<T> {
  const own = new AbortController()
  const stop = AbortSignal.any([signal, own.signal])
  const stopped = new Promise<never>((_, reject) => {
    stop.addEventListener('abort', () => reject(stop.reason), { once: true })
  })
  const seconds = parts.settings.turnTimeoutSeconds
  const timer = setTimeout(() => own.abort(new AgentError('turn_timeout')), seconds * 1000)
  try {
    return await Promise.race([work(stop), stopped])
  } finally {
    clearTimeout(timer)
    own.abort() // ends the model call, whatever ended the turn
  }
}
