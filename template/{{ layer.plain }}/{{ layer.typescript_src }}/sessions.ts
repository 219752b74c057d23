// Sessions: an LRU of committed snapshots, and one first-in-first-out line for each session.

import { LRUCache } from 'lru-cache'

import { AgentError, type Ask } from './contract.ts'
import type { Settings } from './settings.ts'

/** What a turn left: the actor of the session, its number, its idempotency key and its reply. */
export interface Last {
  actor: string | null
  turn: number
  key: string | null
  reply: string
}

/** A committed session: `data` is the framework's, `app_data` is ours. */
export interface Snapshot {
  scope: string
  schema_version: string
  created_at: string
  data: unknown
  app_data: Last
}

/** Committed snapshots as JSON; the least recently used session is forgotten first. */
export class InProcess {
  readonly #entries: LRUCache<string, string>

  constructor(settings: Settings) {
    const [max, ttl] = [settings.sessionCapacity, settings.sessionIdleSeconds * 1000]
    this.#entries = new LRUCache({ max, ttl, updateAgeOnGet: true })
  }

  /** What was saved last, or undefined. */
  async load(sessionId: string): Promise<string | undefined> {
    return this.#entries.get(sessionId)
  }

  /** Replace the snapshot, or throw and change nothing. A cancel must not interrupt it. */
  async save(sessionId: string, snapshot: string): Promise<void> {
    this.#entries.set(sessionId, snapshot)
  }

  /** Forget the session, known or not. */
  async end(sessionId: string): Promise<void> {
    this.#entries.delete(sessionId)
  }
}

/** A session while one turn of it runs: what is committed, and the one way to change it. */
class Session {
  readonly ask: Ask
  readonly snapshot: Snapshot | null
  readonly #store: InProcess

  constructor(ask: Ask, store: InProcess, snapshot: Snapshot | null) {
    this.ask = ask
    this.snapshot = snapshot
    this.#store = store
  }

  /** The `app_data` of the last turn, if this is its idempotency key again. */
  replay(): Last | null {
    const last = this.snapshot?.app_data
    return last && this.ask.key !== null && this.ask.key === last.key ? last : null
  }

  /** Add the turn and return its `app_data`. */
  async commit(snapshot: Omit<Snapshot, 'app_data'>, reply: string): Promise<Last> {
    const turn = (this.snapshot?.app_data.turn ?? 0) + 1
    const last = { actor: this.ask.actor, turn, key: this.ask.key, reply }
    await this.#store.save(this.ask.sessionId, serialize({ ...snapshot, app_data: last }))
    return last
  }

  /** Forget the session. */
  async end(): Promise<void> {
    await this.#store.end(this.ask.sessionId)
  }
}

/** All sessions of this process. */
export class Sessions {
  readonly #queue: number
  readonly #store: InProcess
  /** For each session with a turn, what wakes those that wait behind it. */
  readonly lines = new Map<string, (() => void)[]>()

  constructor(settings: Settings, store: InProcess) {
    this.#queue = settings.sessionQueue
    this.#store = store
  }

  /**
   * Wait for a turn in the session, load what is committed, and use it.
   *
   * Throws AgentError: `session_busy` at once, when too many wait; `session_forbidden`, when
   * another actor had the first turn (no actor counts as one); and what the store throws.
   * An abort ends the wait.
   */
  async open<T>(ask: Ask, signal: AbortSignal, use: (session: Session) => Promise<T>): Promise<T> {
    await this.#enter(ask.sessionId, signal)
    try {
      const stored = await this.#store.load(ask.sessionId)
      const session = new Session(ask, this.#store, stored ? JSON.parse(stored) : null)
      if (session.snapshot && session.snapshot.app_data.actor !== ask.actor) {
        throw new AgentError('session_forbidden')
      }
      signal.throwIfAborted()
      return await use(session)
    } finally {
      this.#leave(ask.sessionId)
    }
  }

  async #enter(sessionId: string, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    const line = this.lines.get(sessionId)
    if (!line) {
      this.lines.set(sessionId, [])
      return
    }
    if (line.length >= this.#queue) throw new AgentError('session_busy')
    const { promise, resolve: wake, reject } = Promise.withResolvers<void>()
    line.push(wake)
    const giveUp = () => {
      const place = line.indexOf(wake)
      if (place >= 0) line.splice(place, 1)
      reject(signal.reason)
    }
    signal.addEventListener('abort', giveUp, { once: true })
    await promise
  }

  #leave(sessionId: string): void {
    const wake = this.lines.get(sessionId)?.shift()
    if (wake) wake()
    else this.lines.delete(sessionId)
  }
}

/** JSON in which each half of a surrogate pair that stands alone, an escape there, is U+FFFD. */
function serialize(value: unknown): string {
  return JSON.stringify(value).replace(/\\(ud...|.)/g, (it) => (it.length > 2 ? '\ufffd' : it))
}
