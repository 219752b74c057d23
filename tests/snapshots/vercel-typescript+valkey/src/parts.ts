// What the turns of one process share: a model, and sessions in the store that the files name.

import { AgentError, type Ask } from './contract.ts'
import { type Backend, Unavailable } from './memory/backends.ts'
import { Mirror } from './memory/mirror.ts'
import type { Collection } from './memory/models.ts'
import { readOptions } from './memory/options.ts'
import { checkProject, loadProject } from './memory/project.ts'
import { referencesOf, Secrets, variableOf } from './memory/secrets.ts'
import { Cached, StoredSessions } from './memory/stored.ts'
import { buildBackend, isWritable, keepers } from './memory/stores.ts'
import { buildModel, checkModel, modelEndpoint } from './model.ts'
import { InProcess, Sessions } from './sessions.ts'
import { type Diagnostic, diagnostic, type Settings } from './settings.ts'

/** The parts, and what the commands and the turns have to know of them. */
export class Parts {
  /** Whether every caller must name an actor. */
  readonly actorRequired: boolean = false
  readonly kept: string = 'Nothing was kept: sessions live in this process.'
  /** null: sessions live in this process. */
  readonly store: Backend | null = null
  /** The one that keeps the sessions. */
  readonly collection: Collection | null

  readonly settings: Settings
  readonly sessions: Sessions
  model: ReturnType<typeof buildModel>
  /** Of further collections. */
  readonly mirrors: readonly Mirror[] = []

  /** Throws anything for files in which `check` finds an error. */
  constructor(settings: Settings) {
    this.settings = settings
    this.model = buildModel(settings)
    const [options] = readOptions()
    const project = loadProject('.', options.agentId)
    const [kept = null, ...mirrored] = keepers(project)
    this.collection = kept
    if (kept === null || unset(settings, kept).length > 0) {
      this.sessions = new Sessions(settings, new InProcess(settings))
      return
    }
    const where = [project.agentId, options, new Secrets(options)] as const
    this.store = buildBackend(kept, ...where)
    this.actorRequired = kept.scope.lifetime === 'user'
    const copied = mirrored.filter((it) => isWritable(project, it) && !unset(settings, it).length)
    const most = options.maxSnapshotBytes
    this.mirrors = copied.map((it) => new Mirror(buildBackend(it, ...where), most))
    const role = { isWritable: isWritable(project, kept), mirrors: this.mirrors }
    if (role.isWritable) this.kept = 'Its turns are kept: --session comes back to it.'
    const cached = new Cached(settings, options, this.store, role)
    this.sessions = new StoredSessions(settings, cached)
  }

  /** Whether something of a committed turn is still to be written. */
  get isWaiting(): boolean {
    return this.mirrors.some((mirror) => mirror.isWaiting)
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
    if (isWrong) return found
    const [project, secrets] = [loadProject('.', options.agentId), new Secrets(options)]
    for (const collection of keepers(project)) {
      try {
        const looked = settings.model === 'offline' ? [] : referencesOf(collection)
        for (const reference of looked) await secrets.get(...reference)
        const isSet = unset(settings, collection).length === 0
        if (isSet) buildBackend(collection, project.agentId, options, secrets)
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error
        found.push(diagnostic('SET-STORE', `${error.message}.`))
      }
    }
    return found
  }

  /** What this process will contact, a line each. */
  async contacts(): Promise<string[]> {
    const model = this.settings.model
    const where = model === 'offline' ? 'nothing' : await modelEndpoint(this.settings)
    const shown = where.replace(/\/\/[^/]*@/, '//') // without a password that the address holds
    const lines = [`Model: ${model}, contacts ${shown}`]
    if (this.collection === null) return [...lines, 'Sessions: in this process']
    if (this.store === null) {
      const [missing] = unset(this.settings, this.collection)
      return [...lines, `Sessions: in this process, until ${missing} is set`]
    }
    const { type } = this.collection.backend
    const copies = this.mirrors.map((mirror) => `Copies: contacts ${mirror.contact}`)
    return [...lines, `Sessions: ${type}, contacts ${this.store.contact}`, ...copies]
  }

  /** More options for the agent of one turn. */
  agentOptions(_ask: Ask): object {
    return {}
  }

  /** Hear what a committed turn added. */
  record(_ask: Ask, _messages: unknown[]): void {}

  /** Write what waits to be written, and close what is open. */
  async close(): Promise<void> {
    for (const mirror of this.mirrors) await mirror.close()
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

/** The variables to set before the collection is used; with a real model it always is. */
function unset(settings: Settings, collection: Collection): string[] {
  if (settings.model !== 'offline') return []
  const names = referencesOf(collection).map(([reference]) => variableOf(reference))
  return names.filter((name) => name && !process.env[name]?.trim())
}
