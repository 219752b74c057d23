// A session in which a turn can wait: beside what is committed, in the same record.

import { randomUUID } from 'node:crypto'

import { LRUCache } from 'lru-cache'
import { z } from 'zod'

import { AgentError, Turn } from '../contract.ts'
import { type LastTurn, type Loaded, Session } from '../sessions/sessions.ts'
import { serialize, type Sessions, type Taken } from '../sessions/sessions.ts'
import type { CoreSettings, SettingsOf } from '../settings.ts'
import * as adapter from './adapter.ts'
import type { APPROVAL_SETTINGS } from './settings.ts'

/** A turn that goes on: null for each call that is approved, or why it is denied. */
export class Answers extends Turn {
  reasons: ReadonlyMap<string, string | null>

  constructor(asked: ConstructorParameters<typeof Turn>[0] & Pick<Answers, 'reasons'>) {
    super(asked)
    this.reasons = asked.reasons
  }
}

/** A turn that waits. */
const WAITING = z.object({
  turn: z.int(),
  key: z.string().nullable(), // of the last request
  prompt_key: z.string().nullable(), // of the first one
  prompt: z.string(),
  reply: z.string(), // so far
  // An id is that of the call, with a mark: models number calls, and an answer is to one wait.
  calls: z.array(z.object({ id: z.string(), tool: z.string(), input: z.unknown() })),
  until: z.int(), // in unix seconds
  messages: z.array(z.unknown()), // of the turn
  kept: z.unknown().optional(), // by capabilities
  other: z.looseObject({}), // what else the framework keeps
})
export type Waiting = z.infer<typeof WAITING>

/** The `app_data` of a snapshot, with the turn that waits. */
export type Kept = LastTurn & { pending?: Waiting; dropped?: boolean; claim?: string }

/**
 * Turns of which it is unknown whether this process has claimed them, by session and claim; at
 * most 64 MiB of them.
 */
const CLAIMS = new LRUCache<string, Waiting>({
  maxSize: 64 * 1024 * 1024,
  sizeCalculation: (waiting) => JSON.stringify(waiting).length,
})

/** A session in which a turn can wait for a person, and go on in another process. */
export class WaitingSession extends Session {
  override readonly waiting: Waiting | undefined
  readonly #isClaimed: boolean
  #drops = false

  constructor(sessions: Sessions, id: string, actor: string | null, loaded: Loaded) {
    super(sessions, id, actor, loaded)
    const last = this.last as Kept | null
    const stored = WAITING.safeParse(last?.pending).data
    const claimed = stored ? undefined : CLAIMS.get(`${id} ${last?.claim}`)
    const waiting = stored ?? claimed
    this.#isClaimed = claimed !== undefined
    this.waiting = waiting && Date.now() / 1000 < waiting.until ? waiting : undefined
  }

  /**
   * Begin a turn, which drops the one that waits, or go on with that one.
   *
   * Throws AgentError `not_waiting` unless exactly the calls that wait are answered.
   */
  override async begin(turn: Turn): Promise<LastTurn | null> {
    const { waiting } = this
    const { key } = turn
    const ids = waiting?.calls.map(({ id }) => id) ?? []
    if (waiting && turn instanceof Answers && isEqual(new Set(ids), new Set(turn.reasons.keys()))) {
      await this.#goOn(turn, waiting)
      return null
    }
    const repeated = this.findRepeated(turn)
    if (repeated) return repeated
    if (waiting && key !== null && [waiting.key, waiting.prompt_key].includes(key)) {
      turn.replay(waiting.turn, waiting.reply)
      return this.#result(waiting)
    }
    if (turn instanceof Answers) {
      const what = `These tool calls wait, and all must be answered: ${ids.join(', ')}.`
      throw new AgentError('not_waiting', waiting ? what : '')
    }
    await super.begin(turn)
    this.#drops = waiting !== undefined
    return null
  }

  async #goOn(turn: Answers, waiting: Waiting): Promise<void> {
    const key = turn.key ?? waiting.key
    const replaces = waiting.turn <= this.number ? waiting.turn : null
    await super.begin(Object.assign(turn, { key: null, replaces, prompt: waiting.prompt }))
    this.start.key = waiting.prompt_key
    if ([...turn.reasons.values()].includes(null)) {
      // No stream begins while the claim is saved: the store can still refuse it.
      turn.hasBegun = false
      await this.#claim(waiting)
      turn.hasBegun = true
    }
    turn.reasons = new Map([...turn.reasons].map(([id, reason]) => [callId(id), reason]))
    const answers = adapter.answers(waiting, turn.reasons)
    Object.assign(turn, { key, reply: waiting.reply, answers })
    turn.notes.set('kept', waiting.kept)
    this.data = { ...waiting.other, messages: [...this.data.messages, ...waiting.messages] }
  }

  /**
   * Take the turn out of the record before a tool runs, so that it runs only once.
   *
   * Throws AgentError: `not_waiting` if the session has ended, `session_conflict` if it changed,
   * and what the store throws.
   */
  async #claim(waiting: Waiting): Promise<void> {
    if (this.#isClaimed) {
      CLAIMS.delete(`${this.id} ${(this.last as Kept).claim}`)
      return
    }
    const [taken, last] = this.#committed()
    // Else the same claim by another process looks like one of this process.
    const claim = randomUUID()
    const name = `${this.id} ${claim}`
    CLAIMS.set(name, waiting)
    let claimed
    try {
      await this.save(taken, { ...last, claim } as LastTurn)
      claimed = await this.sessions.store.load(this.id)
    } catch (error) {
      // If the store has failed, the claim may be saved, now or later.
      const isUnknown = error instanceof AgentError && error.type === 'store_unavailable'
      if (!isUnknown) CLAIMS.delete(name)
      throw error
    }
    CLAIMS.delete(name)
    if (!claimed?.snapshot) throw new AgentError('not_waiting')
    const found = JSON.parse(claimed.snapshot).app_data.claim
    if (found !== claim) throw new AgentError('session_conflict')
    this.stored = { ...claimed, isRolledBack: this.stored?.isRolledBack ?? false }
  }

  /** Return what is committed, without the turn that waits and its claim. */
  #committed(): [Taken, Kept] {
    const { app_data: last, ...taken } = this.snapshot!
    return [taken, { ...last, pending: undefined, claim: undefined } as LastTurn]
  }

  /** Commit a turn; or keep it beside what is committed, if its tool calls wait. */
  override async commit(turn: Turn, taken: Taken, saved: () => void): Promise<LastTurn> {
    const { number, key, prompt, reply } = turn
    if (turn.waiting.length === 0) return super.commit(turn, taken, saved)
    if (new Set(turn.waiting.map(({ id }) => id)).size < turn.waiting.length) {
      // One answer would be to both of them.
      throw new AgentError('model_failed', '', 'two tool calls that wait have the same id')
    }
    const { messages, ...other } = taken.data
    const mark = randomUUID().slice(0, 8)
    const settings = this.sessions.settings as CoreSettings & SettingsOf<typeof APPROVAL_SETTINGS>
    const waiting: Waiting = {
      turn: number,
      key,
      prompt_key: this.start.key,
      prompt,
      reply,
      calls: turn.waiting.map(({ id, name, input }) => ({
        id: `${id}.${mark}`,
        tool: name,
        input,
      })),
      until: Math.floor(Date.now() / 1000) + settings.waitingSeconds,
      messages: messages.slice(this.start.at),
      kept: turn.notes.get('kept'),
      other,
    }
    const none = { actor: this.actor, turn: 0, key: null, reply: '', turns: [] }
    const empty: [Taken, Kept] = [{ ...taken, data: { messages: [] } }, none]
    const [before, last] = this.last ? this.#committed() : empty
    const kept = { ...last, pending: waiting } as LastTurn
    this.checkSize(serialize({ ...before, app_data: kept })) // it costs no older turn
    await super.save(before, kept)
    turn.outcome = 'waiting'
    return this.#result(waiting)
  }

  #result({ turn, calls }: Waiting): LastTurn {
    const dropped = this.#drops
    const rolled_back = this.stored?.isRolledBack
    return { turn, waiting: calls, dropped, rolled_back } as unknown as LastTurn
  }

  /** Save; note in a turn that it took the place of the one that waited. */
  override async save(taken: Taken, last: LastTurn, saved?: () => void): Promise<string> {
    if (this.#drops) Object.assign(last, { dropped: true })
    return super.save(taken, last, saved)
  }
}

function isEqual(some: Set<string>, others: Set<string>): boolean {
  return some.size === others.size && [...some].every((id) => others.has(id))
}

/** Return the id that the model gave to a call, without the mark of the wait. */
function callId(id: string): string {
  return id.slice(0, id.lastIndexOf('.'))
}
