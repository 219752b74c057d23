// The sessions with open effects, in Valkey: any process continues the effects of an ended one.
//
// A sorted set contains the session ids; the score is the time, in Unix seconds, at which a process
// looks at the session. The claims in the sessions decide which process runs their effects.

import { Capability } from '../capability.ts'
import { forEach, type Stock } from '../collections/erasure.ts'
import type { ValkeyConfig } from '../collections/session_backend.ts'
import { AgentError } from '../contract.ts'
import { log, logUnexpected } from '../log.ts'
import type { Modules } from '../modules.ts'
import { StoreUnavailable } from '../store/base.ts'
import { Store } from '../store/capability.ts'
import { ValkeyStore } from '../store/valkey.ts'
import { Effects } from './capability.ts'
import { type Index, isAbortedWithin, now } from './outbox.ts'
import type { EffectSettings } from './settings.ts'

const POLL_SECONDS = 2
const AGAIN_SECONDS = 5 // until the next look at a session
const BATCH = 16

const ADD = "return redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])"
// ARGV: session, score. Another process may have added the session since.
const REMOVE = `
local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if score and tonumber(score) == tonumber(ARGV[2]) then redis.call('ZREM', KEYS[1], ARGV[1]) end
return 1
`
// ARGV: now, next score, maximum number. Only one process gets a session.
const TAKE = `
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])
for _, id in ipairs(ids) do redis.call('ZADD', KEYS[1], ARGV[2], id) end
return ids
`
const ALL = "return redis.call('ZRANGE', KEYS[1], 0, -1)"
const DISCARD = "return redis.call('ZREM', KEYS[1], ARGV[1])"

/** Lets any process that shares the Valkey continue the effects of a session. */
export class EffectIndex extends Capability<EffectSettings> implements Index {
  readonly #sessions: Store
  readonly #effects: Effects
  /** The scores that this process has set, by session. */
  readonly #scores = new Map<string, number>()
  /** Since when a session has no open effects. */
  readonly #empty = new Map<string, number>()
  readonly #closing = new AbortController()
  /** A separate connection to the store of the sessions. */
  #store: ValkeyStore | null = null
  #polling: Promise<void> = Promise.resolve()

  constructor(settings: EffectSettings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    this.#sessions = before.find((capability) => capability instanceof Store)!
    this.#effects = before.find((capability) => capability instanceof Effects)!
  }

  override get closesLast(): boolean {
    return true
  }

  override async open(): Promise<void> {
    this.#connect()
    if (!this.#store) return
    this.#effects.outbox.index = this
    this.#polling = this.#poll()
  }

  override async close(): Promise<void> {
    this.#closing.abort()
    await this.#polling
    await this.#store?.close()
  }

  /** Return the sessions in the index. */
  projectStocks(): Stock[] {
    const store = this.#connect()
    if (!store || !this.#sessions.isWritable) return []
    const keys = [this.#key]
    return [
      {
        what: 'sessions in the index of effects',
        where: store.contact,
        async *pages() {
          const ids = (await store.evaluate(ALL, keys)) as Buffer[]
          yield ids.map(String)
        },
        delete: (ids) => forEach(ids, (id) => store.evaluate(DISCARD, keys, id)),
        failures: [StoreUnavailable],
      },
    ]
  }

  #connect(): ValkeyStore | null {
    const { collection, store } = this.#sessions
    const connected = store && collection ? this.#sessions.connect(collection) : null
    this.#store = connected instanceof ValkeyStore ? connected : null
    return this.#store
  }

  async add(sessionId: string, seconds: number): Promise<void> {
    const score = later(seconds)
    this.#scores.set(sessionId, score)
    await this.#evaluate(ADD, this.#key, score, sessionId)
  }

  async remove(sessionId: string): Promise<void> {
    const score = this.#scores.get(sessionId)
    this.#scores.delete(sessionId)
    if (score !== undefined) await this.#evaluate(REMOVE, this.#key, sessionId, score)
  }

  async #poll(): Promise<void> {
    while (!(await isAbortedWithin(this.#closing.signal, POLL_SECONDS))) {
      await this.#lookAround().catch(logUnexpected)
    }
  }

  async #lookAround(): Promise<void> {
    const score = later(AGAIN_SECONDS)
    const ids = await this.#evaluate(TAKE, this.#key, now(), score, BATCH)
    // Another process may have removed a session that had no open effects here.
    const oldest = performance.now() / 1000 - 2 * this.settings.turnTimeoutSeconds
    for (const [id, since] of this.#empty) if (since <= oldest) this.#empty.delete(id)
    for (const id of (ids ?? []) as Buffer[]) {
      // A session must not stop the others.
      await this.#lookAt(id.toString(), score).catch(logUnexpected)
    }
  }

  /** Continue the effects of a session, or remove it if no turn can still schedule some. */
  async #lookAt(sessionId: string, score: number): Promise<void> {
    const { outbox } = this.#effects
    try {
      if (await outbox.hasOpenCalls(sessionId)) {
        this.#empty.delete(sessionId)
        outbox.watch(sessionId)
        return
      }
    } catch (error) {
      if (!(error instanceof AgentError)) throw error
      log('WARNING', `session ${sessionId}: effects wait: ${error.type}`)
      return
    }
    const seconds = performance.now() / 1000
    const since = this.#empty.get(sessionId) ?? seconds
    this.#empty.set(sessionId, since)
    if (seconds - since <= this.settings.turnTimeoutSeconds) return
    this.#empty.delete(sessionId)
    await this.#evaluate(REMOVE, this.#key, sessionId, score)
  }

  /** Return the result of a script, or undefined if the store failed. */
  async #evaluate(script: string, key: string, ...values: (string | number)[]): Promise<unknown> {
    try {
      return await this.#store?.evaluate(script, [key], ...values)
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error
      log('WARNING', `the index of effects failed: ${error.message}`)
      return undefined
    }
  }

  get #key(): string {
    const { collection, declarations } = this.#sessions
    const { key_prefix: prefix } = collection!.backend as ValkeyConfig
    // Not the pattern of sessions, `<key_prefix>:<session_id>:agent:<agent_id>`.
    return `${prefix}-effects:${declarations.project.agentId}`
  }
}

/** Return the time after `seconds`, in Unix seconds with milliseconds. */
function later(seconds: number): number {
  return Math.round((now() + seconds) * 1000) / 1000
}
