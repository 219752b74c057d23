// Sessions: one first-in-first-out queue each, and the only way to replace a snapshot.

import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'

import { charsOf } from '../models/context_length.ts'
import { AgentError, type Change, checkIds, type Mark, MARKS } from '../contract.ts'
import type { Turn, TurnResult } from '../contract.ts'
import { abortOf, mustPause, pause } from '../deadline.ts'
import type { SessionStore, Stored } from './session_store.ts'
import type { CoreSettings } from '../settings.ts'

/** Where a turn begins: the index of its first message. */
export interface TurnStart {
  at: number
  key: string | null
  /** What the data had besides messages before the turn, if the turn changed it. */
  other?: object
}

/** The request that made a session as a copy of another one. */
export interface Fork {
  /** That of the request, or unique. */
  key: string
  /** The last turn that was copied. */
  turn: number
}

/** What a session keeps of its last turn, besides the messages. */
export interface LastTurn {
  actor: string | null
  turn: number
  key: string | null
  reply: string
  /** Those whose messages the session holds. */
  turns: TurnStart[]
  fork?: Fork | undefined
  /** Whether the turns before it have vanished from the store. */
  restarted?: boolean
  /** Whether the last turns before it have vanished from the store. */
  rolled_back?: boolean
  /** Whether it took the place of a turn that waited. */
  dropped?: boolean
}

/** A session of an actor: its id, the number of its last turn, and the time of that save. */
export interface SessionInfo {
  readonly sessionId: string
  readonly turns: number
  readonly savedAt: string
}

/** A turn that a session holds. */
export interface SessionTurn {
  readonly number: number
  readonly prompt: string
  readonly reply: string
}

/** What a framework keeps of a session; messages are in its own form. */
export interface Data {
  messages: unknown[]
  [name: string]: unknown
}

/** What a framework keeps, as a snapshot without the template's `app_data`. */
export interface Taken {
  scope: string
  schema_version: string
  created_at: string
  data: Data
}

/** What a turn leaves: its snapshot, and the messages that it added, in the framework's form. */
export interface Answered {
  readonly snapshot: Taken
  readonly added: unknown[]
}

/** A committed session. */
export type Snapshot = Taken & { app_data: LastTurn }

export type Loaded = [Stored | null, Snapshot | null]
export type Message = { role: string; content: string | { type?: string; text?: string }[] }

/** A turn that waits for the answers of a person. */
export interface WaitingTurn {
  readonly turn: number
  /** Of the last request. */
  readonly key: string | null
  /** Of the first request. */
  readonly prompt_key: string | null
  readonly prompt: string
  /** The text so far. */
  readonly reply: string
  readonly calls: readonly { id: string; tool: string; input?: unknown }[]
  readonly messages: readonly unknown[]
}

/** What capabilities add to sessions: the first that returns something decides. */
export interface SessionHooks {
  /** Begin a turn in place of the session. Throws AgentError to refuse it. */
  beginTurn?(session: Session, turn: Turn): Promise<Stage | TurnResult | undefined>
  /** Keep a turn whose tool calls wait, beside what is committed. */
  holdTurn?(stage: Stage, taken: Taken): Promise<TurnResult | undefined>
  /** Return the turn of a session that waits. */
  findWaiting?(session: Session): WaitingTurn | undefined
  /**
   * Return what takes the place of dropped messages, of which the turns begin at `at`.
   *
   * `turns` is the number of the last turn that is dropped.
   */
  replaceDropped?(
    turn: Turn,
    dropped: unknown[],
    at: number,
    turns: number,
  ): Promise<unknown[] | undefined>
  /** A session has ended; all are called. */
  sessionEnded?(sessionId: string): void
}

/** A committed session, as it was loaded: no turn changes it. */
export class Session {
  readonly sessions: Sessions
  readonly id: string
  readonly actor: string | null
  readonly stored: Stored | null
  readonly snapshot: Snapshot | null
  readonly last: LastTurn | null
  readonly number: number
  readonly data: Data
  readonly turns: readonly TurnStart[]
  readonly fork: Fork | undefined

  constructor(sessions: Sessions, id: string, actor: string | null, [stored, snapshot]: Loaded) {
    this.sessions = sessions
    this.id = id
    this.actor = actor
    this.stored = stored
    this.snapshot = snapshot
    this.last = snapshot?.app_data ?? null
    if (this.last && this.last.actor !== actor) throw new AgentError('session_forbidden')
    this.number = this.last?.turn ?? 0
    this.data = { messages: [], ...snapshot?.data }
    this.turns = this.last?.turns ?? findTurns(this.data)
    this.fork = this.last?.fork
  }

  /** The turn that waits, if one does. */
  get waiting(): WaitingTurn | undefined {
    for (const hooks of this.sessions.hooks) {
      const waiting = hooks.findWaiting?.(this)
      if (waiting) return waiting
    }
    return undefined
  }

  /**
   * Stage a turn; or return the result of the turn that it repeats by its key.
   *
   * Throws `invalid_request` if there is no turn to replace, and `session_too_large`.
   */
  async begin(turn: Turn): Promise<Stage | TurnResult> {
    for (const hooks of this.sessions.hooks) {
      const begun = await hooks.beginTurn?.(this, turn)
      if (begun) return begun
    }
    return this.findRepeated(turn) ?? this.stage(turn, turn.request.follow(this))
  }

  /** Number a turn, and stage it behind the first `end` turns that the session holds. */
  async stage(turn: Turn, end: number): Promise<Stage> {
    turn.number = this.number + 1 - this.turns.length + end
    turn.prompt ||= textOf(this.data.messages[this.turns[end]!.at] as Message)
    this.checkSize(turn.prompt)
    const stage = new Stage(this, turn, this.before(end))
    turn.hasBegun = true
    await stage.limit()
    return stage
  }

  /**
   * Return the result of the turn that this one repeats, by its key.
   *
   * Turns that a fork copied do not count. A turn that replaces another one can repeat only the
   * last, or the one that stands in that place by now.
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
    const copied = this.fork?.turn ?? 0
    const first = this.number - this.turns.length + 1
    const index = this.turns.findIndex((start, at) => {
      const isInPlace = replaces === null || replaces === first + at
      return start.key === key && first + at > copied && isInPlace
    })
    if (index < 0) return null
    const kept = this.data.messages.slice(this.turns[index]?.at, this.turns[index + 1]?.at)
    const messages = kept as Message[]
    turn.number = first + index
    // The reply of a turn that ended in a value is only its JSON.
    turn.reply = turn.request.output ? textOf(messages.at(-1)!) : replyOf(messages)
    return turn.result('replayed', [])
  }

  /** Return the index of a turn, given its number (0: the last). Throws `invalid_request`. */
  find(asked: number): number {
    const first = this.number - this.turns.length + 1
    const number = asked || this.number
    if (this.turns.length === 0 || number < first || number > this.number) {
      const held = `No turn ${number}: the session holds turns ${first} to ${this.number}.`
      throw new AgentError('invalid_request', this.turns[0] ? held : 'The session holds no turns.')
    }
    return number - first
  }

  /** Return what the session was before the turn of this index. */
  before(end: number): History {
    const turn = this.number - this.turns.length + end
    const turns = this.turns.slice(0, end)
    const [next, ...later] = this.turns.slice(end)
    const fork = this.fork && { ...this.fork, turn: Math.min(this.fork.turn, turn) }
    if (!next) return { data: this.data, turns, turn, fork }
    const messages = this.data.messages.slice(0, next.at)
    const changed = [next, ...later].find(({ other }) => other)
    return { data: { ...(changed?.other ?? this.data), messages }, turns, turn, fork }
  }

  /** Throw `session_too_large` if a snapshot of this JSON is. */
  checkSize(text: string): void {
    const size = Buffer.byteLength(text)
    const { maxBytes } = this.sessions.store
    if (size > maxBytes) throw new AgentError('session_too_large', '', `${size} bytes`)
  }

  /**
   * Save, and return the JSON; if it is too large, without its oldest turns.
   *
   * What stands in front of the turns, such as a summary, stays as long as it fits. `expected` is
   * what the store has now.
   */
  async save(
    taken: Taken,
    last: LastTurn,
    expected: Stored | null,
    saved: () => void = () => {},
  ): Promise<string> {
    const { store } = this.sessions
    let committed = serialize({ ...taken, app_data: last })
    const excess = Buffer.byteLength(committed) - store.maxBytes
    if (excess > 0) {
      const data = { ...taken.data }
      last.turns = drop(data, last.turns, excess)
      committed = serialize({ ...taken, data, app_data: last })
    }
    this.checkSize(committed)
    await store.save(this.id, committed, expected?.revision ?? null, saved)
    return committed
  }

  /** Delete the last turn, and return its number. Throws AgentError if there is none. */
  async takeBack(): Promise<number> {
    const { data, turn, turns, fork } = this.before(this.find(0))
    const last: LastTurn = { actor: this.actor, turn, key: null, reply: '', turns, fork }
    if (turn > 0) await this.save(savedNow({ ...this.snapshot!, data }), last, this.stored)
    else await this.end()
    return this.number
  }

  /** Delete the session, if it was found. */
  async end(): Promise<void> {
    if (this.stored) await this.sessions.store.end(this.id)
    for (const hooks of this.sessions.hooks) hooks.sessionEnded?.(this.id)
  }
}

/** The first turns of a session. */
interface History {
  readonly data: Data
  readonly turns: TurnStart[]
  /** The number of the last of them. */
  readonly turn: number
  readonly fork: Fork | undefined
}

/** A turn on top of its session: the history that its model is shown, and the way to commit it. */
export class Stage {
  readonly session: Session
  readonly turn: Turn
  /** The history, with the messages of a turn that goes on. */
  data: Data
  turns: TurnStart[]
  /** The index of the turn's first message. */
  at: number
  /** The key of the turn in the session. */
  key: string | null
  /** What the store has. */
  stored: Stored | null
  /** The answers of a person to calls that waited, in the framework's form. */
  answers: unknown = undefined
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
    this.stored = session.stored
    if (this.stored && !session.last) this.marks.add('restarted')
    if (this.stored?.isRolledBack) this.marks.add('rolled_back')
    this.#fork = fork
    this.#other = withoutMessages(data)
  }

  /** Cut a history of too many messages or characters to half. */
  async limit(): Promise<void> {
    const { historyMessages, historyChars } = this.session.sessions.settings
    const { length } = this.data.messages
    const before = charsBefore(this.data.messages)
    const chars = before[length] ?? 0
    // To half of it, so that most requests begin as the one before: caches hold.
    const messages = length > historyMessages ? length - Math.floor(historyMessages / 2) : 0
    const size = chars > historyChars ? chars - historyChars / 2 : 0
    if (messages === 0 && size === 0) return
    const fitting = this.turns.find(({ at }) => at >= messages && (before[at] ?? 0) >= size)
    await this.#shorten(fitting?.at ?? this.#lastCut())
  }

  /** Return where a history ends of which no turn fits: a summary can replace several turns. */
  #lastCut(): number {
    const isReplaced = this.session.sessions.hooks.some(({ replaceDropped }) => replaceDropped)
    const all = this.data.messages.length
    if (isReplaced && this.turns.length !== 1) return all
    return this.turns.at(-1)?.at ?? 0
  }

  /** Drop the messages in front of this index, where a turn begins or the history ends. */
  async #shorten(end: number): Promise<void> {
    const { turn, session } = this
    const dropped = this.data.messages.slice(0, end)
    const front = this.turns[0]?.at ?? this.data.messages.length
    const later = this.turns.filter(({ at }) => at >= end)
    let replaced: unknown[] | undefined
    for (const hooks of dropped.length > 0 ? session.sessions.hooks : []) {
      const last = turn.number - 1 - later.length
      replaced ??= await hooks.replaceDropped?.(turn, dropped, front, last)
    }
    const summary = replaced ?? []
    this.data = { ...this.data, messages: [...summary, ...this.data.messages.slice(end)] }
    this.turns = later.map((start) => ({ ...start, at: start.at - end + summary.length }))
    this.at = this.data.messages.length
  }

  /**
   * Remove the older half of the history of a turn that runs, by size, or all of it.
   *
   * The commit of the turn removes it from the session.
   */
  async reduce(all = false): Promise<void> {
    const { messages } = this.data
    const added = messages.slice(this.at)
    const history = messages.slice(0, this.at)
    const before = charsBefore(history)
    const later = this.turns.slice(1)
    const half = ((before[this.turns[0]?.at ?? 0] ?? 0) + (before.at(-1) ?? 0)) / 2
    const next = later.find(({ at }) => (before[at] ?? 0) >= half) ?? later.at(-1)
    const end = all || !next ? this.at : next.at
    this.data = { ...this.data, messages: this.turns.length === 0 ? [] : history }
    await this.#shorten(this.turns.length === 0 ? 0 : end)
    this.data = { ...this.data, messages: [...this.data.messages, ...added] }
  }

  /**
   * Save what the turn leaves, call `saved`, and return its result.
   *
   * `saved` is a callback because a save whose acknowledgement was lost is found by a later
   * load, in another turn. Throws AgentError.
   */
  async commit(taken: Taken, saved: () => void): Promise<TurnResult> {
    const { session, turn } = this
    const [call] = turn.waiting
    if (call) return this.#hold(call.name, taken)
    const isSame = isDeepStrictEqual(this.#other, withoutMessages(taken.data))
    const start: TurnStart = { at: this.at, key: this.key }
    if (!isSame) start.other = this.#other
    const last = this.lastTurn([...this.turns, start])
    await session.save(taken, last, this.stored, saved)
    return turn.result('committed', [...this.marks])
  }

  async #hold(tool: string, taken: Taken): Promise<TurnResult> {
    for (const hooks of this.session.sessions.hooks) {
      const kept = await hooks.holdTurn?.(this, taken)
      if (kept) return kept
    }
    const what = `The tool ${tool} asks for an approval, which nobody can give here`
    const detail = `tool ${tool} asks for approval`
    throw new AgentError('reply_incomplete', `${what}; this turn was not kept.`, detail)
  }

  /** Return the record of the turn, with its marks. */
  lastTurn(turns: TurnStart[]): LastTurn {
    const { number: turn, key, reply } = this.turn
    const { actor } = this.session
    const last: LastTurn = { actor, turn, key, reply, turns, fork: this.#fork }
    for (const mark of this.marks) last[mark] = true
    return last
  }
}

/** The sessions of this process. */
export class Sessions {
  readonly settings: CoreSettings
  readonly store: SessionStore
  readonly hooks: readonly SessionHooks[]
  /** For each session: how many turns run or wait, and the end of the last of them. */
  readonly queues = new Map<string, { turns: number; last: Promise<unknown> }>()
  /** What the running turn of each session has loaded. */
  readonly #loads = new Map<string, Promise<Loaded>>()

  constructor(settings: CoreSettings, store: SessionStore, hooks: readonly SessionHooks[] = []) {
    this.settings = settings
    this.store = store
    this.hooks = hooks
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
    if (loaded) new Session(this, sessionId, actor, loaded)
    signal.throwIfAborted()
    const queue = this.queues.get(sessionId) ?? { turns: 0, last: Promise.resolve() }
    if (queue.turns > this.settings.sessionQueue) throw new AgentError('session_busy')
    this.queues.set(sessionId, queue)
    queue.turns++
    const { promise: end, resolve: leave } = Promise.withResolvers<void>()
    const before = queue.last
    queue.last = Promise.all([before, end])
    try {
      await Promise.race([before, abortOf(signal)])
      const load = this.#load(sessionId)
      this.#loads.set(sessionId, load)
      const session = new Session(this, sessionId, actor, await load)
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

  /**
   * Copy the first turns of a session to a new one.
   *
   * Throws `session_conflict` if it exists, unless a request with the same key has made it.
   */
  async fork({ sessionId, actor, fork, turns, key }: Change, signal: AbortSignal): Promise<void> {
    if (key !== null) {
      const made = await this.open(fork, actor, signal, async (copy) => copy.fork?.key)
      if (made === key) return
    }
    const copied = await this.open(sessionId, actor, signal, async (session) => {
      const { data, ...history } = session.before(session.find(turns) + 1)
      // Without a unique key, the same copy by another process looks like this one.
      const source = { key: key ?? randomUUID(), turn: turns }
      const last: LastTurn = { ...history, actor, key: null, reply: '', fork: source }
      return [savedNow({ ...session.snapshot!, data }), last] as const
    })
    await this.open(fork, actor, signal, async (copy) => {
      if (key !== null && copy.fork?.key === key) return // made while this request waited
      if (copy.last) throw new AgentError('session_conflict', `The session ${fork} exists already.`)
      await copy.save(...copied, copy.stored)
    })
  }

  /** Return the session to read, without waiting for turns. Throws what `open` throws. */
  async read(sessionId: string, actor: string | null): Promise<Session> {
    const loaded = await this.#loads.get(sessionId) // what the running turn began with
    if (loaded) return new Session(this, sessionId, actor, loaded)
    const { signal } = new AbortController()
    return this.open(sessionId, actor, signal, async (session) => session)
  }

  /**
   * Return the sessions of an actor, forks included, the last saved first.
   *
   * This reads all sessions of the store. Throws AgentError `actor_required` without an actor, or
   * `store_unavailable`.
   */
  async list(actor: string | null): Promise<SessionInfo[]> {
    if (!actor) throw new AgentError('actor_required')
    const found: SessionInfo[] = []
    for await (const [sessionId, text] of this.store.snapshots()) {
      if (mustPause()) await pause()
      const { app_data: last, created_at: savedAt } = JSON.parse(text) as Snapshot
      if (last.actor === actor) found.push({ sessionId, turns: last.turn, savedAt })
    }
    return found.sort((one, other) => other.savedAt.localeCompare(one.savedAt))
  }

  /** Return the turns that a session holds, in order. Throws as TurnRequest and `open` do. */
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
   * Delete a session. Throws as TurnRequest and `open` do.
   *
   * `beforeChange` of capabilities decides only about requests of callers: your own code may end
   * every session.
   */
  async end(
    sessionId: string,
    actor: string | null,
    { signal } = new AbortController(),
  ): Promise<void> {
    checkIds(sessionId, actor)
    await this.open(sessionId, actor, signal, (session) => session.end())
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

/** Return the turns of a session that was stored without `turns`. */
export function findTurns({ messages }: Data): TurnStart[] {
  return (messages as Message[]).flatMap((message, at) =>
    message.role === 'user' && textOf(message) ? [{ at, key: null }] : [],
  )
}

/** Return the text of a message, in the form of either framework. */
export function textOf({ content }: Message): string {
  return typeof content === 'string' ? content : content.map(({ text }) => text ?? '').join('')
}

/** Return the text of the replies among messages, in the form of either framework. */
function replyOf(messages: Message[]): string {
  const replies = messages.filter(({ role }) => role === 'assistant')
  const parts = replies.flatMap(({ content }) =>
    typeof content === 'string' ? [{ text: content }] : content,
  )
  return parts.map(({ type = 'text', text = '' }) => (type === 'text' ? text : '')).join('')
}

/** Return the number of characters in front of each message, and that of all. */
function charsBefore(messages: unknown[]): number[] {
  const before = [0]
  for (const message of messages) before.push(before.at(-1)! + charsOf(message))
  return before
}

function withoutMessages(data: Data): object {
  return JSON.parse(JSON.stringify({ ...data, messages: undefined }))
}

/** Drop the oldest turns until `excess` bytes are gone; return where the others begin. */
function drop(data: Data, turns: readonly TurnStart[], excess: number): TurnStart[] {
  const sizes = [0]
  for (const message of data.messages) {
    sizes.push(sizes.at(-1)! + Buffer.byteLength(serialize(message)))
  }
  const front = turns[0]?.at ?? 0
  const sizeTo = (at: number) => (sizes[at] ?? 0) - (sizes[front] ?? 0)
  const fitting = turns.find(({ at }) => sizeTo(at) >= excess)
  const kept = fitting ? data.messages.slice(0, front) : []
  const start = (fitting ?? turns.at(-1))?.at ?? 0
  data.messages = [...kept, ...data.messages.slice(start)]
  const later = turns.filter(({ at }) => at >= start)
  return later.map((turn) => ({ ...turn, at: turn.at - start + kept.length }))
}

/** Return a snapshot that is saved now. */
function savedNow<T extends object>(snapshot: T): T & { created_at: string } {
  return { ...snapshot, created_at: new Date().toISOString() }
}
