// Sessions: each has a first-in-first-out queue of turns, and changes only by a commit.

import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'

import { charsOf } from '../models/context_length.ts'
import { AgentError, type Change, checkIds, type Mark, MARKS } from '../contract.ts'
import type { Turn, TurnResult } from '../contract.ts'
import { abortOf, mustPause, pause } from '../deadline.ts'
import type { SessionStore, Stored } from './session_store.ts'
import type { CoreSettings } from '../settings.ts'

/**
 * Data of capabilities beside the messages, by capability: JSON objects.
 *
 * `open`, a number in a capability's object, counts the work that the agent still has to do.
 */
export type Records = Record<string, object>

/** Where a turn starts in the messages of its session. */
export interface TurnStart {
  /** The index of the turn's first message. */
  at: number
  key: string | null
  /** The framework's data from before the turn, except messages; set if the turn changed it. */
  other?: object
}

/** The request that created a session as a copy. */
export interface Fork {
  /** The request's key, or a unique string. */
  key: string
  /** The number of the last copied turn. */
  turn: number
}

/** The record of a session's last turn, except its messages. */
export interface LastTurn {
  actor: string | null
  turn: number
  key: string | null
  reply: string
  /** The turns whose messages are in the session. */
  turns: TurnStart[]
  /**
   * Whether another program wrote the session and named no actor: the actor of the next turn owns
   * it.
   */
  ownerless?: boolean
  fork?: Fork | undefined
  /** A fork starts without records. */
  records?: Records
  /** Whether the store has lost all earlier turns. */
  restarted?: boolean
  /** Whether the store has lost the latest turns. */
  rolled_back?: boolean
  /** Whether a pending approval was dropped. */
  dropped?: boolean
}

/** An actor's session. */
export interface SessionInfo {
  readonly sessionId: string
  /** The number of turns so far: the number of the last turn, even if older turns were dropped. */
  readonly turns: number
  /** The time of the last save, in ISO 8601. */
  readonly savedAt: string
}

/** A turn in a session. */
export interface SessionTurn {
  readonly number: number
  readonly prompt: string
  readonly reply: string
}

/** The framework's data for a session, in the framework's format. */
export interface Data {
  messages: unknown[]
  [name: string]: unknown
}

/** A snapshot without `app_data`. */
export interface FrameworkSnapshot {
  scope: string
  schema_version: string
  created_at: string
  data: Data
}

/** The outcome of a turn, in the framework's format: the snapshot and the turn's own messages. */
export interface TurnAnswer {
  readonly snapshot: FrameworkSnapshot
  readonly newMessages: unknown[]
}

/** A committed session. */
export type Snapshot = FrameworkSnapshot & { app_data: LastTurn }

export type LoadResult = [Stored | null, Snapshot | null]
export type Message = { role: string; content: string | { type?: string; text?: string }[] }

/** A turn with pending approvals. */
export interface WaitingTurn {
  readonly turn: number
  /** The key of the last request. */
  readonly key: string | null
  /** The key of the first request. */
  readonly prompt_key: string | null
  readonly prompt: string
  /** The text of the reply so far. */
  readonly reply: string
  readonly calls: readonly { id: string; tool: string; input?: unknown }[]
  readonly messages: readonly unknown[]
}

/** The methods of a capability for sessions; the first returned value wins. */
export interface SessionHooks {
  /** Begin a turn in a custom way, or answer it without a model. */
  beginTurn?(session: Session, turn: Turn): Promise<Stage | TurnResult | undefined>
  /** Handle the begin of a turn that a model answers; `stage.data` may change. */
  turnBegun?(stage: Stage): Promise<void>
  /**
   * Replace records in `last.records` before a save. Not async.
   *
   * `turn` is the turn that the save commits, if any. If another process saved records first, the
   * method is called again with its records.
   */
  beforeSave?(session: Session, last: LastTurn & { records: Records }, turn?: Turn): void
  /** Store a turn that waits for approvals. */
  holdTurn?(stage: Stage, snapshot: FrameworkSnapshot): Promise<TurnResult | undefined>
  /** Return the waiting turn of a session. */
  findWaiting?(session: Session): WaitingTurn | undefined
  /**
   * Return replacements for dropped messages; the history begins with them.
   *
   * `at` is the index in `dropped` of the first message that belongs to a turn; those before it are
   * replacements from a previous call. `turns` is the number of the last dropped turn.
   */
  replaceDropped?(
    turn: Turn,
    dropped: unknown[],
    at: number,
    turns: number,
  ): Promise<unknown[] | undefined>
  /** Handle the end of a session; every capability is called. */
  sessionEnded?(sessionId: string): void
}

/** A loaded session; only its `save` replaces the committed snapshot. */
export class Session {
  readonly sessions: Sessions
  readonly id: string
  readonly actor: string | null
  /** The stored snapshot. */
  stored: Stored | null
  /** The stored records. */
  records: Records
  readonly snapshot: Snapshot | null
  readonly last: LastTurn | null
  readonly number: number
  readonly data: Data
  readonly turns: readonly TurnStart[]
  readonly fork: Fork | undefined
  #saving: Promise<unknown> = Promise.resolve()

  constructor(
    sessions: Sessions,
    id: string,
    actor: string | null,
    [stored, snapshot]: LoadResult,
  ) {
    this.sessions = sessions
    this.id = id
    this.actor = actor
    this.stored = stored
    this.snapshot = snapshot
    this.last = snapshot?.app_data ?? null
    this.records = this.last?.records ?? {}
    if (this.last && this.last.actor !== actor && !this.last.ownerless) {
      throw new AgentError('session_forbidden')
    }
    this.number = this.last?.turn ?? 0
    this.data = { messages: [], ...snapshot?.data }
    this.turns = this.last?.turns ?? findTurns(this.data)
    this.fork = this.last?.fork
  }

  /** The turn with pending approvals. */
  get waiting(): WaitingTurn | undefined {
    for (const hooks of this.sessions.hooks) {
      const waiting = hooks.findWaiting?.(this)
      if (waiting) return waiting
    }
    return undefined
  }

  /**
   * Return the stage of a turn, or the result of an earlier turn with the same key.
   *
   * Throws AgentError: `invalid_request` if the turn to replace does not exist, or
   * `session_too_large`.
   */
  async begin(turn: Turn): Promise<Stage | TurnResult> {
    const stage = await this.#begin(turn)
    if (stage instanceof Stage) {
      for (const hooks of this.sessions.hooks) await hooks.turnBegun?.(stage)
    }
    return stage
  }

  async #begin(turn: Turn): Promise<Stage | TurnResult> {
    for (const hooks of this.sessions.hooks) {
      const stage = await hooks.beginTurn?.(this, turn)
      if (stage) return stage
    }
    return this.findRepeated(turn) ?? this.stage(turn, turn.request.follow(this))
  }

  /** Number a turn and return its stage, which continues the turns before the index `end`. */
  async stage(turn: Turn, end: number): Promise<Stage> {
    turn.number = this.number + 1 - this.turns.length + end
    const repeated = turn.prompt ? undefined : this.data.messages[this.turns[end]!.at]
    turn.prompt ||= textOf(repeated as Message)
    const stage = new Stage(this, turn, this.historyBefore(end))
    stage.checkSize(turn.request.files.reduce((sum, { data }) => sum + data.length, 0))
    if (repeated) stage.repeatedFiles = partsWithoutText(repeated as Message)
    turn.hasBegun = true
    await stage.limit()
    return stage
  }

  /**
   * Return the result of the earlier turn with the same key, or null.
   *
   * Copied turns of a fork do not count. A turn with `replaces` can repeat only the last turn
   * or the turn with that number.
   */
  findRepeated(turn: Turn): TurnResult | null {
    const { key, isRepeatable, replaces } = turn.request
    const { last } = this
    if (!last || !isRepeatable) return null
    if (key === last.key) {
      turn.number = this.number
      turn.reply = last.reply
      const marks = MARKS.filter((mark) => last[mark])
      return turn.result('replayed', marks)
    }
    const lastCopied = this.fork?.turn ?? 0
    const first = this.number - this.turns.length + 1
    const index = this.turns.findIndex((start, offset) => {
      const number = first + offset
      const isInPlace = replaces === null || replaces === number
      return start.key === key && number > lastCopied && isInPlace
    })
    if (index < 0) return null
    const end = this.turns[index + 1]?.at
    const messages = this.data.messages.slice(this.turns[index]?.at, end) as Message[]
    turn.number = first + index
    // The reply of a turn with an output value is only its JSON.
    turn.reply = turn.request.output ? textOf(messages.at(-1)!) : replyOf(messages)
    return turn.result('replayed', [])
  }

  /** Return the index of a turn number (0: the last turn). Throws `invalid_request`. */
  find(turnNumber: number): number {
    const first = this.number - this.turns.length + 1
    const number = turnNumber || this.number
    if (this.turns.length === 0 || number < first || number > this.number) {
      const range = `No turn ${number}: the session holds turns ${first} to ${this.number}.`
      const message = this.turns[0] ? range : 'The session holds no turns.'
      throw new AgentError('invalid_request', message)
    }
    return number - first
  }

  /** Return the history before the turn with this index. */
  historyBefore(end: number): History {
    const turn = this.number - this.turns.length + end
    const turns = this.turns.slice(0, end)
    const [next, ...later] = this.turns.slice(end)
    const fork = this.fork && { ...this.fork, turn: Math.min(this.fork.turn, turn) }
    if (!next) return { data: this.data, turns, turn, fork }
    const messages = this.data.messages.slice(0, next.at)
    const change = [next, ...later].find(({ other }) => other)
    return { data: { ...(change?.other ?? this.data), messages }, turns, turn, fork }
  }

  /** Throw `session_too_large` if this text and these files exceed the limit. */
  checkSize(text: string, fileBytes = 0): void {
    const size = Buffer.byteLength(text) + fileBytes
    const { maxBytes } = this.sessions.store
    if (size > maxBytes) throw new AgentError('session_too_large', '', `${size} bytes`)
  }

  /**
   * Save the snapshot and call `saved`. `turn` is the turn that the save commits.
   *
   * If it is too large, drop the oldest turns first. Messages before the turns, such as a summary,
   * stay if they fit.
   */
  save(
    snapshot: FrameworkSnapshot,
    last: LastTurn,
    saved: () => void = () => {},
    turn?: Turn,
  ): Promise<void> {
    return this.#afterSaves(() => this.#save(snapshot, last, saved, turn))
  }

  /** Save only the records, as `beforeSave` of the capabilities changes them. */
  saveRecords(): Promise<void> {
    return this.#afterSaves(() => {
      const text = this.stored?.snapshot
      const { app_data: last, ...snapshot } = text ? (JSON.parse(text) as Snapshot) : this.#empty()
      return this.#save(snapshot, last, () => {})
    })
  }

  /** Save the snapshot and return it as stored, or null if the store has lost it. */
  async claim(snapshot: FrameworkSnapshot, last: LastTurn): Promise<Snapshot | null> {
    await this.save(snapshot, last)
    const claimed = await this.sessions.store.load(this.id)
    if (!claimed?.snapshot) return null
    const stored = JSON.parse(claimed.snapshot) as Snapshot
    this.stored = { ...claimed, isRolledBack: this.#isRolledBack }
    this.records = stored.app_data.records ?? {}
    return stored
  }

  get #isRolledBack(): boolean {
    return this.stored?.isRolledBack ?? false
  }

  /** Run a save after the earlier saves of this session. */
  #afterSaves(save: () => Promise<void>): Promise<void> {
    const saving = this.#saving.then(save)
    this.#saving = saving.catch(() => {})
    return saving
  }

  async #save(
    snapshot: FrameworkSnapshot,
    last: LastTurn,
    saved: () => void,
    turn?: Turn,
  ): Promise<void> {
    for (;;) {
      const next = { ...last, records: { ...this.records } }
      if (this.actor !== null && next.ownerless) {
        next.actor = this.actor // even while its first turn is not committed
        delete next.ownerless
      }
      for (const hooks of this.sessions.hooks) hooks.beforeSave?.(this, next, turn)
      const { records, ...fields } = next
      const hasRecords = Object.keys(records).length > 0
      const committed = this.#serialize(snapshot, hasRecords ? next : fields)
      const expected = this.stored?.revision ?? null
      try {
        const revision = await this.sessions.store.save(this.id, committed, expected, saved)
        this.stored = { revision, snapshot: committed, isRolledBack: this.#isRolledBack }
        this.records = records
        return
      } catch (error) {
        const isConflict = error instanceof AgentError && error.type === 'session_conflict'
        if (!isConflict || !(await this.#loadRecords())) throw error
      }
    }
  }

  #serialize(snapshot: FrameworkSnapshot, last: LastTurn): string {
    let committed = serialize({ ...snapshot, app_data: last })
    const excess = Buffer.byteLength(committed) - this.sessions.store.maxBytes
    if (excess > 0) {
      const data = { ...snapshot.data }
      const turns = drop(data, last.turns, excess)
      committed = serialize({ ...snapshot, data, app_data: { ...last, turns } })
    }
    this.checkSize(committed)
    return committed
  }

  /** Load the records that another process saved; return false if it saved more than that. */
  async #loadRecords(): Promise<boolean> {
    const stored = await this.sessions.store.load(this.id).catch(() => null)
    if (!stored?.snapshot || !this.stored?.snapshot) return false
    if (stored.revision === this.stored.revision) return false // no other process saved
    const latest = JSON.parse(stored.snapshot) as Snapshot
    const known = JSON.parse(this.stored.snapshot) as Snapshot
    const records = latest.app_data.records ?? {}
    delete latest.app_data.records
    delete known.app_data.records
    if (!isDeepStrictEqual(latest, known)) return false
    this.stored = { ...stored, isRolledBack: this.#isRolledBack }
    this.records = records
    return true
  }

  /** Return the snapshot of a new session, without turns. */
  #empty(): Snapshot {
    const head = { scope: 'agent', schema_version: '1.0', created_at: '' }
    const last: LastTurn = { actor: this.actor, turn: 0, key: null, reply: '', turns: [] }
    return withCurrentTime({ ...head, data: { messages: [] }, app_data: last })
  }

  /** Delete the last turn and return its number. Throws AgentError if the session has no turns. */
  async takeBack(): Promise<number> {
    const { data, turn, turns, fork } = this.historyBefore(this.find(0))
    const last: LastTurn = { actor: this.actor, turn, key: null, reply: '', turns, fork }
    if (turn > 0) await this.save(withCurrentTime({ ...this.snapshot!, data }), last)
    else await this.end()
    return this.number
  }

  /** Delete the session, and data of it that an earlier end or a quarantine left. */
  async end(): Promise<void> {
    const { store } = this.sessions
    if (this.last) await store.end(this.id)
    else await store.endRest(this.id, this.actor)
    for (const hooks of this.sessions.hooks) hooks.sessionEnded?.(this.id)
  }
}

/** The first turns of a session, and their data. */
interface History {
  readonly data: Data
  readonly turns: TurnStart[]
  /** The number of the last turn. */
  readonly turn: number
  readonly fork: Fork | undefined
}

/** The working copy of a session that a running turn extends and then commits. */
export class Stage {
  readonly session: Session
  readonly turn: Turn
  /** The framework's data, with the messages of a resumed turn. */
  data: Data
  turns: TurnStart[]
  /** The index of the first message of the turn. */
  at: number
  /** The key of the prompt. */
  key: string | null
  /** The approvals of a resumed turn, in the framework's format. */
  answers: unknown = undefined
  /** The files of a prompt that runs again, in the framework's format. */
  repeatedFiles: readonly unknown[] = []
  readonly marks = new Set<Mark>()
  readonly #fork: Fork | undefined
  readonly #other: object

  constructor(session: Session, turn: Turn, { data, turns, fork }: History) {
    this.session = session
    this.turn = turn
    this.data = data
    this.turns = turns
    this.at = data.messages.length
    this.key = turn.key
    if (session.stored && !session.last) this.marks.add('restarted')
    if (session.stored?.isRolledBack) this.marks.add('rolled_back')
    this.#fork = fork
    this.#other = withoutMessages(data)
  }

  /** Throw `session_too_large` if the prompt and files of this size exceed the limit. */
  checkSize(fileBytes: number): void {
    this.session.checkSize(this.turn.prompt, (fileBytes * 4) / 3) // as base64
  }

  /** If the history exceeds a limit, cut it to half of that limit. */
  async limit(): Promise<void> {
    const { historyMessages, historyChars } = this.session.sessions.settings
    const { length } = this.data.messages
    // A snapshot is longer than its texts together, which take time to count.
    const isShort = (this.session.stored?.snapshot.length ?? 0) <= historyChars
    if (isShort && length <= historyMessages) return
    const charCounts = charsBefore(this.data.messages)
    const chars = charCounts[length] ?? 0
    // Half the limit leaves room for later turns: fewer cuts let requests share a cached prefix.
    const messages = length > historyMessages ? length - Math.floor(historyMessages / 2) : 0
    const size = chars > historyChars ? chars - historyChars / 2 : 0
    if (messages === 0 && size === 0) return
    const start = this.turns.find(({ at }) => at >= messages && (charCounts[at] ?? 0) >= size)
    await this.#shorten(start?.at ?? this.#lastCut())
  }

  /**
   * Return where to cut if not even the last turn fits.
   *
   * A summary replaces all turns; without summaries, the last turn stays. Keep the only turn:
   * without it, each large turn would need a summary.
   */
  #lastCut(): number {
    const canReplace = this.session.sessions.hooks.some(({ replaceDropped }) => replaceDropped)
    const end = this.data.messages.length
    if (canReplace && this.turns.length !== 1) return end
    return this.turns.at(-1)?.at ?? 0
  }

  /** Drop the messages before the index `end`: a turn begins there, or the history ends. */
  async #shorten(end: number): Promise<void> {
    const { turn, session } = this
    const dropped = this.data.messages.slice(0, end)
    const front = this.turns[0]?.at ?? this.data.messages.length
    const later = this.turns.filter(({ at }) => at >= end)
    let summary: unknown[] | undefined
    for (const hooks of dropped.length > 0 ? session.sessions.hooks : []) {
      const last = turn.number - 1 - later.length
      summary ??= await hooks.replaceDropped?.(turn, dropped, front, last)
    }
    summary ??= []
    const { length } = summary
    this.data = { ...this.data, messages: [...summary, ...this.data.messages.slice(end)] }
    this.turns = later.map((start) => ({ ...start, at: start.at - end + length }))
    this.at = this.data.messages.length
  }

  /**
   * Remove the older half (by size) or all of the history before the running turn.
   *
   * The stored session changes only when the turn commits.
   */
  async reduce(all = false): Promise<void> {
    const { messages } = this.data
    const resumedMessages = messages.slice(this.at)
    const history = messages.slice(0, this.at)
    const charCounts = charsBefore(history)
    const later = this.turns.slice(1)
    const half = ((charCounts[this.turns[0]?.at ?? 0] ?? 0) + (charCounts.at(-1) ?? 0)) / 2
    const next = later.find(({ at }) => (charCounts[at] ?? 0) >= half) ?? later.at(-1)
    const end = all || !next ? this.at : next.at
    this.data = { ...this.data, messages: this.turns.length === 0 ? [] : history }
    await this.#shorten(this.turns.length === 0 ? 0 : end)
    this.data = { ...this.data, messages: [...this.data.messages, ...resumedMessages] }
  }

  /**
   * Save the snapshot of the turn, call `saved`, and return the result.
   *
   * `saved` is a callback, because a save whose confirmation was lost may be discovered only when a
   * later turn loads the session. Throws AgentError.
   */
  async commit(snapshot: FrameworkSnapshot, saved: () => void): Promise<TurnResult> {
    const { session, turn } = this
    const [call] = turn.waiting
    if (call) return this.#hold(call.name, snapshot)
    const isSame = isDeepStrictEqual(this.#other, withoutMessages(snapshot.data))
    const start: TurnStart = { at: this.at, key: this.key }
    if (!isSame) start.other = this.#other
    const last = this.lastTurn([...this.turns, start])
    await session.save(snapshot, last, saved, turn)
    return turn.result('committed', [...this.marks])
  }

  async #hold(tool: string, snapshot: FrameworkSnapshot): Promise<TurnResult> {
    for (const hooks of this.session.sessions.hooks) {
      const result = await hooks.holdTurn?.(this, snapshot)
      if (result) return result
    }
    const what = `The tool ${tool} needs approval, but approvals are not enabled`
    const detail = `tool ${tool} asks for approval`
    throw new AgentError('reply_incomplete', `${what}; this turn was not saved.`, detail)
  }

  /** Return the `app_data` of a session that ends with this turn. */
  lastTurn(turns: TurnStart[]): LastTurn {
    const { number: turn, key, reply } = this.turn
    const { actor } = this.session
    const last: LastTurn = { actor, turn, key, reply, turns, fork: this.#fork }
    for (const mark of this.marks) last[mark] = true
    return last
  }
}

/** The users of a session: its running and queued turns, and work of capabilities. */
interface Queue {
  turns: number
  users: number
  /** Settles when the last of them has left. */
  last: Promise<unknown>
}

/** The sessions of this process. */
export class Sessions {
  readonly settings: CoreSettings
  readonly store: SessionStore
  readonly hooks: readonly SessionHooks[]
  /** The queue of each session that is in use. */
  readonly queues = new Map<string, Queue>()
  /** The latest load by session. */
  readonly #loads = new Map<string, Promise<LoadResult>>()

  constructor(settings: CoreSettings, store: SessionStore, hooks: readonly SessionHooks[] = []) {
    this.settings = settings
    this.store = store
    this.hooks = hooks
  }

  /**
   * Wait for earlier turns, then load the committed session and use it. An abort ends the wait.
   *
   * Throws AgentError: `session_forbidden` if another actor owns the session, `session_busy` at
   * once if the queue is full, or an error of the store. The owner is checked before and after the
   * wait. All callers without an actor count as one actor.
   */
  async open<T>(
    sessionId: string,
    actor: string | null,
    signal: AbortSignal,
    use: (session: Session) => Promise<T>,
  ): Promise<T> {
    const loaded = await this.#loads.get(sessionId)?.catch(() => null)
    // Other actors get no place in the queue.
    if (loaded) new Session(this, sessionId, actor, loaded)
    signal.throwIfAborted()
    const queue = this.#queueOf(sessionId)
    if (queue.turns > this.settings.sessionQueue) throw new AgentError('session_busy')
    queue.turns++
    const taking = this.#inTurn(sessionId, queue, signal, async () => {
      const load = this.#load(sessionId)
      this.#loads.set(sessionId, load)
      const session = new Session(this, sessionId, actor, await load)
      signal.throwIfAborted()
      return await use(session)
    })
    return taking.finally(() => queue.turns--)
  }

  /**
   * Wait for earlier turns, then load a session for a capability's work outside a turn.
   *
   * This needs no actor, and no place in the queue of turns. Throws AgentError of the store.
   */
  async openForWork<T>(sessionId: string, use: (session: Session) => Promise<T>): Promise<T> {
    const { signal } = new AbortController()
    return this.#inTurn(sessionId, this.#queueOf(sessionId), signal, async () => {
      const loaded = await this.#load(sessionId)
      const actor = loaded[1]?.app_data.actor ?? null
      return await use(new Session(this, sessionId, actor, loaded))
    })
  }

  #queueOf(sessionId: string): Queue {
    return this.queues.get(sessionId) ?? { turns: 0, users: 0, last: Promise.resolve() }
  }

  /** Wait for the earlier users of a session, then use it. An abort ends the wait. */
  async #inTurn<T>(
    sessionId: string,
    queue: Queue,
    signal: AbortSignal,
    use: () => Promise<T>,
  ): Promise<T> {
    this.queues.set(sessionId, queue)
    queue.users++
    const { promise: end, resolve: leave } = Promise.withResolvers<void>()
    const earlier = queue.last
    queue.last = Promise.all([earlier, end])
    try {
      await Promise.race([earlier, abortOf(signal)])
      return await use()
    } finally {
      leave()
      queue.users--
      if (queue.users === 0) {
        this.queues.delete(sessionId)
        this.#loads.delete(sessionId)
      }
    }
  }

  /**
   * Copy the first turns of a session to a new session.
   *
   * Throws `session_conflict` if the new session already exists, unless a request with the same key
   * created it.
   */
  async fork({ sessionId, actor, fork, turns, key }: Change, signal: AbortSignal): Promise<void> {
    if (key !== null) {
      const copyKey = await this.open(fork, actor, signal, async (copy) => copy.fork?.key)
      if (copyKey === key) return
    }
    const excerpt = await this.open(sessionId, actor, signal, async (session) => {
      const { data, ...history } = session.historyBefore(session.find(turns) + 1)
      // A random key distinguishes this copy from an identical copy by another process.
      const source = { key: key ?? randomUUID(), turn: turns }
      const last: LastTurn = { ...history, actor, key: null, reply: '', fork: source }
      return [withCurrentTime({ ...session.snapshot!, data }), last] as const
    })
    await this.open(fork, actor, signal, async (copy) => {
      if (key !== null && copy.fork?.key === key) return // created during the wait
      const message = `The session ${fork} already exists: choose another id.`
      if (copy.last) throw new AgentError('session_conflict', message)
      await copy.save(...excerpt)
    })
  }

  /** Return a session without waiting for a running turn. Throws the errors of `open`. */
  async read(sessionId: string, actor: string | null): Promise<Session> {
    const loaded = await this.#loads.get(sessionId) // the snapshot before the running turn
    if (loaded) return new Session(this, sessionId, actor, loaded)
    const { signal } = new AbortController()
    return this.open(sessionId, actor, signal, async (session) => session)
  }

  /**
   * Return the sessions of an actor, including forks, most recently saved first.
   *
   * Reads the whole store. Throws AgentError: `actor_required`, `store_unavailable`.
   */
  async list(actor: string | null): Promise<SessionInfo[]> {
    if (!actor) throw new AgentError('actor_required')
    const sessions: SessionInfo[] = []
    for await (const [sessionId, text] of this.store.snapshots()) {
      if (mustPause()) await pause()
      const { app_data: last, created_at: savedAt } = JSON.parse(text) as Snapshot
      if (last.actor === actor) sessions.push({ sessionId, turns: last.turn, savedAt })
    }
    return sessions.sort((a, b) => b.savedAt.localeCompare(a.savedAt))
  }

  /** Return the turns in a session, in order. Throws the errors of TurnRequest and `open`. */
  async turns(sessionId: string, actor: string | null): Promise<SessionTurn[]> {
    checkIds(sessionId, actor)
    const { data, number, turns } = await this.read(sessionId, actor)
    const first = number - turns.length + 1
    return turns.map(({ at }, index) => {
      const messages = data.messages.slice(at, turns[index + 1]?.at) as Message[]
      return { number: first + index, prompt: textOf(messages[0]!), reply: replyOf(messages) }
    })
  }

  /**
   * Delete a session. Does not call capabilities' `beforeChange`.
   *
   * Throws the errors of TurnRequest and `open`.
   */
  async end(
    sessionId: string,
    actor: string | null,
    { signal } = new AbortController(),
  ): Promise<void> {
    checkIds(sessionId, actor)
    await this.open(sessionId, actor, signal, (session) => session.end())
  }

  async #load(sessionId: string): Promise<LoadResult> {
    const stored = await this.store.load(sessionId)
    return [stored, stored?.snapshot ? JSON.parse(stored.snapshot) : null]
  }
}

/** Return JSON with U+FFFD for lone surrogates, which JSON.stringify escapes. */
export function serialize(value: unknown): string {
  const text = JSON.stringify(value)
  if (!text.includes('\\ud')) return text // faster than the expression
  return text.replace(/(?<=(?<!\\)(?:\\\\)*)\\ud.../g, '\ufffd')
}

/** Return the turns of a session that an older version stored without `turns`. */
export function findTurns({ messages }: Data): TurnStart[] {
  return (messages as Message[]).flatMap((message, at) =>
    message.role === 'user' && textOf(message) ? [{ at, key: null }] : [],
  )
}

/** Return the text of a message in the format of Strands or of the AI SDK. */
export function textOf({ content }: Message): string {
  return typeof content === 'string' ? content : content.map(({ text }) => text ?? '').join('')
}

function partsWithoutText({ content }: Message): readonly unknown[] {
  return typeof content === 'string' ? [] : content.filter(({ text }) => text === undefined)
}

/** Return the assistant's text in messages in the format of Strands or of the AI SDK. */
function replyOf(messages: Message[]): string {
  const replies = messages.filter(({ role }) => role === 'assistant')
  const parts = replies.flatMap(({ content }) =>
    typeof content === 'string' ? [{ text: content }] : content,
  )
  return parts.map(({ type = 'text', text = '' }) => (type === 'text' ? text : '')).join('')
}

/** Return the number of characters before each message, and the total. */
function charsBefore(messages: unknown[]): number[] {
  const before = [0]
  for (const message of messages) before.push(before.at(-1)! + charsOf(message))
  return before
}

function withoutMessages(data: Data): object {
  return JSON.parse(JSON.stringify({ ...data, messages: undefined }))
}

/** Drop the oldest turns of `data` until `excess` bytes are gone; return the remaining turns. */
function drop(data: Data, turns: readonly TurnStart[], excess: number): TurnStart[] {
  const sizes = [0]
  for (const message of data.messages) {
    sizes.push(sizes.at(-1)! + Buffer.byteLength(serialize(message)))
  }
  const starts = turns.map(({ at }) => at)
  const startAfter = (front: number) => {
    return starts.find((at) => (sizes[at] ?? 0) - (sizes[front] ?? 0) >= excess)
  }
  let front = starts[0] ?? 0
  let start = startAfter(front)
  if (start === undefined) {
    front = 0
    start = startAfter(front) ?? starts.at(-1) ?? 0
  }
  data.messages = [...data.messages.slice(0, front), ...data.messages.slice(start)]
  const later = turns.filter(({ at }) => at >= start)
  return later.map((turn) => ({ ...turn, at: turn.at - start + front }))
}

/** Return the snapshot with the current time as `created_at`. */
function withCurrentTime<T extends object>(snapshot: T): T & { created_at: string } {
  return { ...snapshot, created_at: new Date().toISOString() }
}
