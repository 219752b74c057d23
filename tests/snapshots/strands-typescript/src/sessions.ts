// Sessions: one first-in-first-out queue each, and the only way to replace a snapshot.

import { AgentError, type Turn } from './contract.ts'
import { abortOf } from './deadline.ts'
import type { SessionStore, Stored } from './session_store.ts'
import type { CoreSettings } from './settings.ts'

/** The last turn: the actor of the session, its number, its idempotency key and its reply. */
export interface LastTurn {
  actor: string | null
  turn: number
  key: string | null
  reply: string
  /** Whether the turns before it have vanished from the store. */
  restarted?: boolean
}

/** A committed session: `data` is the framework's, `app_data` is the template's LastTurn. */
export interface Snapshot {
  scope: string
  schema_version: string
  created_at: string
  data: unknown
  app_data: LastTurn
}

type Loaded = [Stored | null, Snapshot | null]

/** A session during one turn: the committed snapshot, and the only way to replace it. */
class Session {
  readonly snapshot: Snapshot | null
  readonly #id: string
  readonly #actor: string | null
  readonly #store: SessionStore
  readonly #stored: Stored | null

  constructor(id: string, actor: string | null, store: SessionStore, loaded: Loaded) {
    this.#id = id
    this.#actor = actor
    this.#store = store
    ;[this.#stored, this.snapshot] = loaded
    if (this.snapshot && this.snapshot.app_data.actor !== actor) {
      throw new AgentError('session_forbidden')
    }
  }

  /**
   * Set the turn's number; if its key repeats the last turn's, return that turn for replay.
   *
   * Throws `session_too_large` for a prompt that no session can hold.
   */
  begin(turn: Turn): LastTurn | null {
    const { key } = turn
    const last = this.snapshot?.app_data
    turn.number = (last?.turn ?? 0) + 1
    if (last && key !== null && key === last.key) {
      Object.assign(turn, { number: last.turn, outcome: 'replayed' })
      return last
    }
    this.#checkSize(turn.prompt)
    return null
  }

  #checkSize(text: string): void {
    const size = Buffer.byteLength(text)
    if (size > this.#store.maxBytes) throw new AgentError('session_too_large', '', `${size} bytes`)
  }

  /**
   * Save the snapshot that the turn leaves, call `saved`, and return its `app_data`.
   *
   * `starts` are the indexes of the messages with which turns begin: if the snapshot is too
   * large, `commit` drops the oldest turns. `saved` is a callback because a save whose
   * acknowledgement was lost is found by a later load, in another turn.
   */
  async commit(
    { number, key }: Turn,
    snapshot: Omit<Snapshot, 'app_data'>,
    starts: number[],
    reply: string,
    saved: () => void,
  ): Promise<LastTurn> {
    const last: LastTurn = { actor: this.#actor, turn: number, key, reply }
    if (this.#stored && !this.snapshot) last.restarted = true
    let committed = serialize({ ...snapshot, app_data: last })
    const excess = Buffer.byteLength(committed) - this.#store.maxBytes
    if (excess > 0 && starts.length > 1) {
      const data = snapshot.data as { messages: unknown[] }
      let size = 0
      const ends = data.messages.map((message) => (size += Buffer.byteLength(serialize(message))))
      const start = starts.slice(1).find((at) => ends[at - 1]! >= excess) ?? starts.at(-1)
      const messages = data.messages.slice(start)
      committed = serialize({ ...snapshot, data: { ...data, messages }, app_data: last })
    }
    this.#checkSize(committed)
    await this.#store.save(this.#id, committed, this.#stored?.revision ?? null, saved)
    return last
  }

  /** Delete the session, if it was found. */
  async end(): Promise<void> {
    if (this.#stored) await this.#store.end(this.#id)
  }
}

/** The sessions of this process. */
export class Sessions {
  readonly #limit: number
  readonly store: SessionStore
  /** For each session: how many turns run or wait, and the end of the last of them. */
  readonly queues = new Map<string, { turns: number; last: Promise<unknown> }>()
  /** What the running turn of each session has loaded. */
  readonly #loads = new Map<string, Promise<Loaded>>()

  constructor(settings: CoreSettings, store: SessionStore) {
    this.#limit = settings.sessionQueue
    this.store = store
  }

  /**
   * Wait for the turns before this one, then load what is committed and use it.
   *
   * Throws AgentError: `session_forbidden` if another actor owns the session, checked before and
   * after the wait (callers without an actor count as one); `session_busy` at once when too many
   * wait; and what the store throws. An abort ends the wait.
   */
  async open<T>(
    sessionId: string,
    actor: string | null,
    signal: AbortSignal,
    use: (session: Session) => Promise<T>,
  ): Promise<T> {
    const loaded = await this.#loads.get(sessionId)?.catch(() => null)
    // Other actors get no place in the queue.
    if (loaded) new Session(sessionId, actor, this.store, loaded)
    signal.throwIfAborted()
    const queue = this.queues.get(sessionId) ?? { turns: 0, last: Promise.resolve() }
    if (queue.turns > this.#limit) throw new AgentError('session_busy')
    this.queues.set(sessionId, queue)
    queue.turns++
    const { promise: end, resolve: leave } = Promise.withResolvers<void>()
    const before = queue.last
    queue.last = Promise.all([before, end])
    try {
      await Promise.race([before, abortOf(signal)])
      const load = this.#load(sessionId)
      this.#loads.set(sessionId, load)
      const session = new Session(sessionId, actor, this.store, await load)
      signal.throwIfAborted()
      return await use(session)
    } finally {
      leave()
      queue.turns--
      if (queue.turns === 0) {
        this.queues.delete(sessionId)
        this.#loads.delete(sessionId)
      }
    }
  }

  /** Return what is committed, or null, without waiting for turns. Throws what `open` throws. */
  async read(sessionId: string, actor: string | null): Promise<Snapshot | null> {
    const loaded = await this.#loads.get(sessionId) // what the running turn began with
    if (loaded) return new Session(sessionId, actor, this.store, loaded).snapshot
    const { signal } = new AbortController()
    return this.open(sessionId, actor, signal, async ({ snapshot }) => snapshot)
  }

  async #load(sessionId: string): Promise<Loaded> {
    const stored = await this.store.load(sessionId)
    return [stored, stored?.snapshot ? JSON.parse(stored.snapshot) : null]
  }
}

/** Return JSON; each lone surrogate, which JSON.stringify escapes, becomes U+FFFD. */
export function serialize(value: unknown): string {
  return JSON.stringify(value).replace(/(?<=(?<!\\)(?:\\\\)*)\\ud.../g, '\ufffd')
}
