// Sessions: one first-in-first-out queue each, and the only way to replace a snapshot.

import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'

import { charsOf } from '../models/context_length.ts'
import { AgentError, type Change, type Turn } from '../contract.ts'
import { abortOf } from '../deadline.ts'
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
  /** Whether the turns before it have vanished from the store. */
  restarted?: boolean
  fork?: Fork
  /** Whether the last turns before it have vanished from the store. */
  rolled_back?: boolean
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

/** A committed session. */
export type Snapshot = Taken & { app_data: LastTurn }

export type Loaded = [Stored | null, Snapshot | null]
export type Message = { role: string; content: string | { type?: string; text?: string }[] }

/** A session during one turn: the committed snapshot, and the only way to replace it. */
export class Session {
  readonly snapshot: Snapshot | null
  readonly last: LastTurn | null
  readonly number: number
  data: Data
  turns: TurnStart[]
  fork: Fork | undefined
  start: TurnStart = { at: 0, key: null }
  protected stored: Stored | null
  protected readonly sessions: Sessions
  protected readonly id: string
  protected readonly actor: string | null
  #other: object = {}
  /** A turn that waits for an approval. */
  readonly waiting: unknown

  constructor(sessions: Sessions, id: string, actor: string | null, loaded: Loaded) {
    this.sessions = sessions
    this.id = id
    this.actor = actor
    ;[this.stored, this.snapshot] = loaded
    this.last = this.snapshot?.app_data ?? null
    if (this.last && this.last.actor !== actor) throw new AgentError('session_forbidden')
    this.number = this.last?.turn ?? 0
    this.data = { messages: [], ...this.snapshot?.data }
    this.turns = this.last?.turns ?? findTurns(this.data)
    this.fork = this.last?.fork
  }

  /**
   * Number the turn, and reduce `data` to the turns that the model is shown.
   *
   * If the turn's key repeats that of a turn in the session, return that turn for replay.
   * Throws `invalid_request` if there is no turn to replace, and `session_too_large`.
   */
  async begin(turn: Turn): Promise<LastTurn | null> {
    const repeated = this.findRepeated(turn)
    if (repeated) return repeated
    const end = turn.follow(this)
    turn.number = this.number + 1 - this.turns.length + end
    turn.prompt ||= textOf(this.data.messages[this.turns[end]!.at] as Message)
    this.checkSize(turn.prompt)
    this.cut(end)
    turn.hasBegun = true
    await this.#limit(turn)
    this.start = { at: this.data.messages.length, key: turn.key }
    this.#other = withoutMessages(this.data)
    return null
  }

  /**
   * Return the turn that this one repeats, by its key, and fill this one from it.
   *
   * Turns that a fork copied do not count. A turn that replaces another one can repeat only the
   * last, or the one that stands in that place by now.
   */
  protected findRepeated(turn: Turn): LastTurn | null {
    const { key } = turn
    if (!this.last || key === null) return null
    if (key === this.last.key) {
      turn.replay(this.number, this.last.reply)
      return this.last
    }
    const copied = this.fork?.turn ?? 0
    const first = this.number - this.turns.length + 1
    const index = this.turns.findIndex((start, at) => {
      const isInPlace = turn.replaces === null || turn.replaces === first + at
      return start.key === key && first + at > copied && isInPlace
    })
    if (index < 0) return null
    const messages = this.data.messages.slice(this.turns[index]?.at, this.turns[index + 1]?.at)
    turn.replay(first + index, replyOf(messages as Message[]))
    return this.#lastTurn(first + index, key, turn.reply, [])
  }

  #lastTurn(turn: number, key: string | null, reply: string, turns: TurnStart[]): LastTurn {
    const last: LastTurn = { actor: this.actor, turn, key, reply, turns }
    if (this.fork) last.fork = this.fork
    return last
  }

  /** Cut a history of too many messages or characters to half, in front of this turn. */
  async #limit(turn: Turn): Promise<void> {
    const { historyMessages, historyChars } = this.sessions.settings
    const { length } = this.data.messages
    const before = charsBefore(this.data.messages)
    const chars = before[length] ?? 0
    // To half of it, so that most requests begin as the one before: caches hold.
    const messages = length > historyMessages ? length - Math.floor(historyMessages / 2) : 0
    const size = chars > historyChars ? chars - historyChars / 2 : 0
    if (messages === 0 && size === 0) return
    await this.shorten(
      turn,
      this.findCut((at) => at >= messages && (before[at] ?? 0) >= size),
    )
  }

  /** Return where the first turn that fits begins, or the last turn. */
  protected findCut(fits: (at: number) => boolean): number {
    return (this.turns.find(({ at }) => fits(at)) ?? this.turns.at(-1))?.at ?? 0
  }

  /** Drop the messages in front of this index, where a turn begins or the history ends. */
  async shorten(_turn: Turn, end: number): Promise<void> {
    this.data.messages = this.data.messages.slice(end)
    const later = this.turns.filter(({ at }) => at >= end)
    this.turns = later.map((start) => ({ ...start, at: start.at - end }))
  }

  /**
   * Remove the older half of the history of a turn that runs, by size, or all of it.
   *
   * The commit of the turn removes it from the session.
   */
  async reduce(turn: Turn, all = false): Promise<void> {
    const { messages } = this.data
    const added = messages.slice(this.start.at)
    this.data.messages = messages.slice(0, this.start.at)
    const before = charsBefore(this.data.messages)
    const later = this.turns.slice(1)
    const half = ((before[this.turns[0]?.at ?? 0] ?? 0) + (before.at(-1) ?? 0)) / 2
    const next = later.find(({ at }) => (before[at] ?? 0) >= half) ?? later.at(-1)
    if (this.turns.length === 0) this.data.messages = []
    else await this.shorten(turn, all || !next ? this.start.at : next.at)
    this.start = { ...this.start, at: this.data.messages.length }
    this.data.messages = [...this.data.messages, ...added]
  }

  /** Return the index of a turn, given its number (0: the last). Throws `invalid_request`. */
  find(asked: number): number {
    const [first, number] = [this.number - this.turns.length + 1, asked || this.number]
    if (this.turns.length === 0 || number < first || number > this.number) {
      const held = `No turn ${number}: the session holds turns ${first} to ${this.number}.`
      throw new AgentError('invalid_request', this.turns[0] ? held : 'The session holds no turns.')
    }
    return number - first
  }

  /** Reduce the session to what it was before the turn of this index. */
  cut(end: number): LastTurn {
    const turn = this.number - this.turns.length + end
    const later = this.turns.slice(end)
    if (later[0]) {
      const messages = this.data.messages.slice(0, later[0].at)
      this.data = { ...(later.find(({ other }) => other)?.other ?? this.data), messages }
      this.turns = this.turns.slice(0, end)
    }
    if (this.fork) this.fork = { ...this.fork, turn: Math.min(this.fork.turn, turn) }
    return this.#lastTurn(turn, null, '', this.turns)
  }

  /** Throw `session_too_large` if a snapshot of this JSON is. */
  protected checkSize(text: string): void {
    const size = Buffer.byteLength(text)
    const { maxBytes } = this.sessions.store
    if (size > maxBytes) throw new AgentError('session_too_large', '', `${size} bytes`)
  }

  /**
   * Save the snapshot that the turn leaves, call `saved`, and return its `app_data`.
   *
   * `saved` is a callback because a save whose acknowledgement was lost is found by a later
   * load, in another turn. Throws AgentError.
   */
  async commit(turn: Turn, taken: Taken, saved: () => void): Promise<LastTurn> {
    const { number, key, reply, waiting } = turn
    if (waiting[0]) {
      const what = `The tool ${waiting[0].name} asks for an approval, which nobody can give here`
      const detail = `tool ${waiting[0].name} asks for approval`
      throw new AgentError('reply_incomplete', `${what}; this turn was not kept.`, detail)
    }
    const isSame = isDeepStrictEqual(this.#other, withoutMessages(taken.data))
    const start = isSame ? this.start : { ...this.start, other: this.#other }
    const turns = [...this.turns, start]
    const last = this.#lastTurn(number, key, reply, turns)
    if (this.stored && !this.last) last.restarted = true
    if (this.stored?.isRolledBack) last.rolled_back = true
    await this.save(taken, last, saved)
    return last
  }

  /** Save, and return the JSON; if it is too large, without its oldest turns. */
  async save(taken: Taken, last: LastTurn, saved: () => void = () => {}): Promise<string> {
    const { store } = this.sessions
    let committed = serialize({ ...taken, app_data: last })
    const excess = Buffer.byteLength(committed) - store.maxBytes
    if (excess > 0) {
      const data = { ...taken.data }
      let size = 0
      const ends = data.messages.map((message) => (size += Buffer.byteLength(serialize(message))))
      last.turns = drop(data, last.turns, (at) => (ends[at - 1] ?? 0) >= excess)
      committed = serialize({ ...taken, data, app_data: last })
    }
    this.checkSize(committed)
    await store.save(this.id, committed, this.stored?.revision ?? null, saved)
    return committed
  }

  /** Delete the last turn, and return its number. Throws AgentError if there is none. */
  async takeBack(): Promise<number> {
    const last = this.cut(this.find(0))
    if (last.turn > 0) await this.save({ ...this.snapshot!, data: this.data }, last)
    else await this.end()
    return this.number
  }

  /** Delete the session, if it was found. */
  async end(): Promise<void> {
    if (this.stored) await this.sessions.store.end(this.id)
  }
}

/** The sessions of this process. */
export class Sessions {
  readonly settings: CoreSettings
  readonly store: SessionStore
  sessionClass = Session
  /** For each session: how many turns run or wait, and the end of the last of them. */
  readonly queues = new Map<string, { turns: number; last: Promise<unknown> }>()
  /** What the running turn of each session has loaded. */
  readonly #loads = new Map<string, Promise<Loaded>>()

  constructor(settings: CoreSettings, store: SessionStore) {
    this.settings = settings
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
    if (loaded) new this.sessionClass(this, sessionId, actor, loaded)
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
      const session = new this.sessionClass(this, sessionId, actor, await load)
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
      const last = session.cut(session.find(turns) + 1)
      // Without a unique key, the same copy by another process looks like this one.
      last.fork = { key: key ?? randomUUID(), turn: turns }
      return [{ ...session.snapshot!, data: session.data }, last] as const
    })
    await this.open(fork, actor, signal, async (copy) => {
      if (key !== null && copy.fork?.key === key) return // made while this request waited
      if (copy.last) throw new AgentError('session_conflict', `The session ${fork} exists already.`)
      await copy.save(...copied)
    })
  }

  /** Return the session to read, without waiting for turns. Throws what `open` throws. */
  async read(sessionId: string, actor: string | null): Promise<Session> {
    const loaded = await this.#loads.get(sessionId) // what the running turn began with
    if (loaded) return new this.sessionClass(this, sessionId, actor, loaded)
    const { signal } = new AbortController()
    return this.open(sessionId, actor, signal, async (session) => session)
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

/** Drop the turns before the first one that fits, or the last; return where the others begin. */
function drop(data: Data, turns: TurnStart[], fits: (at: number) => boolean): TurnStart[] {
  const start = (turns.find(({ at }) => fits(at)) ?? turns.at(-1))?.at ?? 0
  data.messages = data.messages.slice(start)
  return turns.filter(({ at }) => at >= start).map((turn) => ({ ...turn, at: turn.at - start }))
}
