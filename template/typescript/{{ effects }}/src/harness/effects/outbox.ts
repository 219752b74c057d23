// Runs the effects of this process, and records their outcomes in the sessions.
//
// The session is the outbox: a save adds and removes records, and its compare-and-set decides which
// process runs them. Before a process runs scheduled calls, a save claims them for a limited time.

import { AsyncLocalStorage } from 'node:async_hooks'

import { within } from '../capability.ts'
import { AgentError, type Turn } from '../contract.ts'
import { TimeoutError, withinTime } from '../deadline.ts'
import { describe, log, logUnexpected, placeOf } from '../log.ts'
import type { LastTurn, Records, Session, Sessions } from '../sessions/sessions.ts'
import type { Snapshot, Stage } from '../sessions/sessions.ts'
import { canonical, type EffectFunction, FUNCTIONS, Rejected } from './functions.ts'
import { type Call, isOf, isOpen, NAME, newId, readCall } from './records.ts'
import { Section, SKEW_SECONDS } from './records.ts'
import type { EffectSettings } from './settings.ts'

const FIRST_PAUSE = 0.5 // seconds; each further pause is twice as long
const MAX_PAUSE = 30
const MAX_PAUSES = 10 // after failures of the store; later, the next opening continues
const NOT_JSON = 'The call is done. Its result could not be recorded.'
const TOO_LARGE = 'The result was too large to be recorded.'
const MAX_REASON = 1000 // characters of a recorded failure

/** The sessions with open effects, for all processes. Methods do not throw. */
export interface Index {
  /** Add a session, so that each process looks at it after `seconds`. */
  add(sessionId: string, seconds: number): Promise<void>
  /** Remove a session, unless another process has added it since. */
  remove(sessionId: string): Promise<void>
}

/**
 * The outcome of a call.
 *
 * "removed" removes the record, because the call had no effect. "scheduled" is a failed try, or a
 * person's decision to retry.
 */
export interface Outcome {
  readonly status: 'done' | 'failed' | 'unknown' | 'removed' | 'scheduled'
  readonly result?: unknown
  /** Whether the next identical call of `once` gets it. */
  readonly wanted?: boolean
  /** The first try of a scheduled call. */
  readonly tried?: number
  /** The process of the start; not for a scheduled call, or if a person decided. */
  readonly owner?: string
}

/** A call of `once` for the next save. */
interface Start {
  readonly call: Call
  /** The process of the earlier start with this key, or "". */
  readonly replaces: string
}

/** Another process has started the call with this key. */
export class StartedElsewhere extends Error {}

/** The data of a turn that it keeps while it waits for approvals. */
export interface Kept {
  scheduled: Call[]
  /** The keys of the calls of `once` that this try has started, or whose outcomes it has got. */
  used: string[]
}

/** The effects of a process. */
export class Outbox {
  /** The id of this process, as an owner of calls. */
  readonly id = newId()
  readonly settings: EffectSettings
  sessions!: Sessions
  index: Index | undefined
  /** Running calls of `once` by key. */
  readonly running = new Map<string, Promise<unknown>>()
  /** The keys of running calls that a later turn waits for. */
  readonly adopted = new Set<string>()
  /** The work of this process by session. */
  readonly workers = new Map<string, Promise<void>>()
  /** The stages of the running turns by session. */
  readonly #stages = new Map<string, Stage>()
  /** Outcomes that no save has, by session and key. */
  readonly #outcomes = new Map<string, Map<string, Outcome>>()
  /** Calls for the next save, by session and key. */
  readonly #starts = new Map<string, Map<string, Start>>()
  /** The ids of sections that no save has, by session. */
  readonly #ids = new Map<string, string>()
  readonly #working = new Set<string>()
  /** The sessions to watch when their worker ends. */
  readonly #again = new Set<string>()
  /** The sessions whose next save claims their calls. */
  readonly #claims = new Set<string>()
  /** The sessions whose calls this process has claimed. */
  readonly #owned = new Set<string>()
  readonly #reported = new Set<string>()
  readonly #closing = new AbortController()
  /** Aborts when the process ends, whatever still runs. */
  readonly #end = new AbortController()
  /** Runs a function without the turn, whose context must not reach later calls. */
  readonly #outside = AsyncLocalStorage.snapshot()

  constructor(settings: EffectSettings) {
    this.settings = settings
  }

  /** Whether a call is running or an outcome is not saved. */
  get isBusy(): boolean {
    const hasOutcomes = [...this.#outcomes.values()].some(({ size }) => size > 0)
    return this.running.size > 0 || this.#working.size > 0 || hasOutcomes
  }

  /** Return the outcomes of a session that no save has, by key. */
  outcomesOf(sessionId: string): Map<string, Outcome> {
    const outcomes = this.#outcomes.get(sessionId) ?? new Map<string, Outcome>()
    this.#outcomes.set(sessionId, outcomes)
    return outcomes
  }

  // Records

  /** Return the records of a session with the outcomes that no save has. */
  view({ id, records }: Session): Section {
    const section = this.#read(id, records)
    this.#merge(id, section)
    return section
  }

  #read(sessionId: string, records: Records): Section {
    const section = new Section(records)
    if (!(NAME in records)) {
      section.fields.id = this.#ids.get(sessionId) ?? section.fields.id
      this.#ids.set(sessionId, section.fields.id)
    }
    return section
  }

  #merge(sessionId: string, section: Section): void {
    for (const start of this.#starts.get(sessionId)?.values() ?? []) {
      if (canReplace(start, section.find(start.call.key))) section.put(start.call)
    }
    const outcomes = this.#outcomes.get(sessionId) ?? new Map<string, Outcome>()
    for (const call of section.calls) {
      const outcome = outcomes.get(call.key)
      if (!outcome || !changes(outcome, call)) continue
      if (outcome.status === 'removed') {
        section.remove(new Set([call.key]))
        continue
      }
      call.status = outcome.status
      call.result = this.#recorded(outcome)
      call.wanted ||= outcome.wanted ?? false
      call.tried = outcome.tried ?? 0
      if (call.status === 'done') call.arguments = {}
    }
  }

  /** Return a result or a reason as it is recorded. */
  #recorded({ status, result = null }: Outcome): unknown {
    if (status === 'failed') return [...String(result)].slice(0, MAX_REASON).join('')
    const size = Buffer.byteLength(canonical(result))
    return size > this.settings.maxEffectBytes / 4 ? TOO_LARGE : result
  }

  /**
   * Drop old results until the limits hold; return whether they do.
   *
   * The running turn keeps its results, because it may fail and be repeated.
   */
  makeRoom(sessionId: string, section: Section): boolean {
    const { maxEffects, maxEffectBytes } = this.settings
    const stage = this.#stages.get(sessionId)
    const kept = new Set(keptOf(stage?.turn).used)
    for (const call of section.calls) {
      if (stage && isOf(call, identityOf(stage))) kept.add(call.key)
    }
    return section.makeRoom(maxEffects, maxEffectBytes, kept)
  }

  /** Update the records before a save; `turn` commits its calls and has shown `shown`. */
  update(
    { id }: Session,
    last: LastTurn & { records: Records },
    turn: Turn | undefined,
    shown: ReadonlySet<string>,
  ): void {
    const { records } = last
    const added = keptOf(turn).scheduled.map(readCall)
    const addsCalls = added.length > 0 || this.#starts.get(id)?.size
    if (!(NAME in records) && !addsCalls && !this.#outcomes.get(id)?.size) return
    const section = this.#read(id, records)
    const { fields } = section
    this.#merge(id, section)
    const isForeign = section.isOfOther(this.id, now())
    if (!isForeign) {
      // A turn that is replaced or taken back must not have effects.
      const number = turn ? turn.number - 1 : last.turn
      const later = section.scheduled.filter((call) => call.turn > number)
      section.remove(new Set(later.map(({ key }) => key)))
    }
    section.remove(shown)
    for (const call of added) section.put(call)
    if (turn) section.commit(identityOf(this.#stages.get(id)!), keptOf(turn).used)
    if (addsCalls) this.makeRoom(id, section) // an outcome is recorded even above the limits
    fields.open = section.scheduled.length
    const isReleased = this.#closing.signal.aborted && fields.owner === this.id
    const isClaimed = !isForeign && (added.length > 0 || this.#claims.has(id))
    if (isReleased || fields.open === 0) {
      fields.owner = ''
    } else if (isClaimed) {
      fields.owner = this.id
      fields.until = now() + 2 * this.settings.effectTimeoutSeconds + SKEW_SECONDS
      this.#owned.add(id)
    }
    // The keys of later calls need its id.
    if (section.calls.length > 0 || NAME in records) records[NAME] = section.toJSON()
  }

  /** Save the starts and outcomes of a session. Throws AgentError. */
  save(sessionId: string): Promise<void> {
    return this.#outside(() => this.#save(sessionId))
  }

  async #save(sessionId: string): Promise<void> {
    const outcomes = new Map(this.#outcomes.get(sessionId))
    const stage = this.#stages.get(sessionId)
    if (stage) {
      await stage.session.saveRecords()
    } else {
      await this.sessions.openForWork(sessionId, async (session) => {
        if (session.snapshot) await session.saveRecords()
      })
    }
    this.#forgetOutcomes(sessionId, outcomes)
  }

  #forgetOutcomes(sessionId: string, saved: ReadonlyMap<string, Outcome>): void {
    const remaining = this.#outcomes.get(sessionId)
    for (const [key, outcome] of saved) {
      if (remaining?.get(key) === outcome) remaining.delete(key)
    }
    if (remaining?.size === 0) this.#outcomes.delete(sessionId)
  }

  // The calls of `once`

  /**
   * Save a call of `once` as started, then run it as a promise of `running`.
   *
   * Throws an Error if the save fails or `signal` has aborted, and StartedElsewhere: then the call
   * does not run. The signal also aborts at the end of the turn.
   */
  async start(
    session: Session,
    effect: EffectFunction,
    call: Call,
    replaces: string,
    signal: AbortSignal,
  ): Promise<void> {
    const { id } = session
    const starts = this.#starts.get(id) ?? new Map<string, Start>()
    this.outcomesOf(id).delete(call.key)
    this.#starts.set(id, starts.set(call.key, { call, replaces }))
    try {
      await this.save(id)
      signal.throwIfAborted()
    } catch (error) {
      this.#withdraw(id, call)
      if (!(error instanceof AgentError) || signal.aborted) throw error
      throw new Error(`${call.tool} did not run: ${error.message}`)
    } finally {
      starts.delete(call.key)
    }
    const saved = new Section(session.records).find(call.key)
    if (!saved || saved.owner !== this.id || !isOpen(saved)) throw new StartedElsewhere()
    const running = this.#runStarted(session, effect, call)
    running.catch(() => {}) // the turn may have ended
    this.running.set(call.key, running)
    void running.catch(() => {}).then(() => this.#endCall(call.key))
  }

  #endCall(key: string): void {
    this.running.delete(key)
    this.adopted.delete(key)
  }

  /** Remove the start of a call that did not run: the store may have saved it. */
  #withdraw(sessionId: string, { key, owner }: Call): void {
    this.outcomesOf(sessionId).set(key, { status: 'removed', owner })
    this.watch(sessionId)
  }

  async #runStarted({ id, actor }: Session, effect: EffectFunction, call: Call): Promise<unknown> {
    let result: unknown
    let failure: unknown
    let hasFailed = false
    let outcome: Outcome
    try {
      result = await this.#call(id, actor, effect, call)
      outcome = { status: 'done', result: asJson(result) }
    } catch (error) {
      if (this.#end.signal.aborted) throw error // another process resolves the call
      failure = error
      hasFailed = true
      if (error instanceof Rejected) {
        outcome = { status: 'removed', owner: call.owner }
      } else {
        log('WARNING', `effect ${call.tool}: ${describe(error)}${placeOf(error)}`)
        outcome = await this.resolve(id, effect, call)
      }
    }
    const wanted = this.adopted.has(call.key)
    this.outcomesOf(id).set(call.key, { ...outcome, wanted })
    try {
      await this.save(id)
    } catch (error) {
      if (!(error instanceof AgentError)) throw error
      this.watch(id) // the commit of the turn, or the worker, saves the outcome
    }
    if (!hasFailed) return result
    if (outcome.status === 'unknown') throw new Error(unknown(call))
    if (outcome.status === 'done') return outcome.result
    throw failure
  }

  /** Call the function of an effect within its time limit. */
  #call(
    sessionId: string,
    actor: string | null,
    effect: EffectFunction,
    { key, turn, arguments: args }: Call,
  ): Promise<unknown> {
    const { effectTimeoutSeconds } = this.settings
    const run = (signal: AbortSignal) => effect.run({ key, sessionId, actor, turn, signal }, args)
    return withinTime(effectTimeoutSeconds, this.#end.signal, run, () => new TimeoutError())
  }

  /** Return the outcome of a started call, as the owner's `reconcile` reports it. */
  async resolve(sessionId: string, { reconcile }: EffectFunction, call: Call): Promise<Outcome> {
    if (reconcile) {
      try {
        const seconds = this.settings.effectTimeoutSeconds
        const result = await within(seconds, async () => reconcile(call.key))
        const isDone = result !== null && result !== undefined
        if (isDone) return { status: 'done', result: asJson(result) }
        return { status: 'removed', owner: call.owner }
      } catch (error) {
        log('WARNING', `reconcile of ${call.tool}: ${describe(error)}${placeOf(error)}`)
      }
    }
    this.report(sessionId, call, 'its outcome is unknown')
    return { status: 'unknown', owner: call.owner }
  }

  /** Log a problem of a call, once in this process. */
  report(sessionId: string, { key, tool }: Call, problem: string): void {
    if (this.#reported.has(key)) return
    this.#reported.add(key)
    const text = `session ${sessionId}: effect ${key} of ${tool}: ${problem}`
    log('ERROR', `${text}; see \`effects list\``)
  }

  // Scheduled calls

  /** Run the scheduled calls of a session and save its outcomes, in the background. */
  watch(sessionId: string): void {
    if (this.#closing.signal.aborted) return
    if (this.workers.has(sessionId)) {
      this.#again.add(sessionId)
      return
    }
    const worker = this.#outside(() => this.#work(sessionId))
    this.workers.set(sessionId, worker)
    void worker.then(() => this.#endWorker(sessionId))
  }

  #endWorker(sessionId: string): void {
    this.workers.delete(sessionId)
    if (this.#again.delete(sessionId)) this.watch(sessionId)
  }

  async #work(sessionId: string): Promise<void> {
    let failures = 0
    let pause: number | null = 0
    while (pause !== null && !this.#end.signal.aborted) {
      this.#working.add(sessionId)
      try {
        pause = await this.step(sessionId)
        failures = 0
      } catch (error) {
        if (error instanceof AgentError) {
          failures++
          pause = failures <= MAX_PAUSES ? pauseAfter(failures) : null
          log('WARNING', `session ${sessionId}: effects wait: ${error.type} ${error.detail}`)
        } else {
          logUnexpected(error) // other sessions continue
          pause = null
        }
      } finally {
        this.#working.delete(sessionId)
      }
      if (pause && (await isAbortedWithin(this.#closing.signal, pause))) return
    }
  }

  /**
   * Do the next piece of work; return the pause after it in seconds, or null at the end.
   *
   * Throws AgentError.
   */
  async step(sessionId: string): Promise<number | null> {
    const snapshot = await this.#load(sessionId)
    if (snapshot === null) {
      this.#outcomes.delete(sessionId) // the session has ended
      await this.#finish(sessionId)
      return null
    }
    const section = new Section(snapshot.app_data.records ?? {})
    const { owner, until } = section.fields
    this.#merge(sessionId, section)
    const [next] = section.scheduled
    const isForeign = section.isOfOther(this.id, now())
    if (this.#outcomes.get(sessionId)?.size && (isForeign || !next)) {
      await this.save(sessionId)
      return 0
    }
    if (!next) {
      await this.#finish(sessionId)
      return null
    }
    if (isForeign) return Math.min(until + SKEW_SECONDS - now(), MAX_PAUSE)
    const { effectTimeoutSeconds } = this.settings
    if (owner === this.id && until >= now() + effectTimeoutSeconds) {
      const pause = await this.#try(sessionId, snapshot.app_data.actor, next)
      // The claim may end during the pause.
      if (pause > 0 && this.#outcomes.get(sessionId)?.size) await this.save(sessionId)
      return pause
    }
    await this.index?.add(sessionId, 2 * effectTimeoutSeconds)
    this.#claims.add(sessionId)
    try {
      await this.save(sessionId)
    } finally {
      this.#claims.delete(sessionId)
    }
    return 0
  }

  async #try(sessionId: string, actor: string | null, call: Call): Promise<number> {
    const effect = FUNCTIONS.get(call.tool)
    if (effect?.kind !== call.kind) {
      this.report(sessionId, call, 'no `afterCommit` tool has this name, so it waits')
      return MAX_PAUSE
    }
    if ((await effect.parse(call.arguments)) === null) {
      this.report(sessionId, call, 'the parameters of the function have changed, so it waits')
      return MAX_PAUSE
    }
    const tried = call.tried || now()
    let outcome: Outcome
    try {
      const result = await this.#call(sessionId, actor, effect, call)
      outcome = { status: 'done', result: asJson(result) }
    } catch (error) {
      if (this.#end.signal.aborted) return 0 // another process runs the call again
      if (error instanceof Rejected) {
        outcome = { status: 'failed', result: error.message }
      } else {
        const reason = describe(error)
        log('WARNING', `effect ${call.tool} ${call.key}: ${reason}${placeOf(error)}`)
        const age = now() - tried
        if (age < this.settings.effectRetrySeconds) {
          // The retry period also counts for other processes.
          if (!call.tried) this.outcomesOf(sessionId).set(call.key, { status: 'scheduled', tried })
          return randomly(Math.min(Math.max(FIRST_PAUSE, age / 2), MAX_PAUSE))
        }
        outcome = { status: 'failed', result: reason }
      }
      log('ERROR', `session ${sessionId}: effect ${call.key} of ${call.tool} failed`)
    }
    this.outcomesOf(sessionId).set(call.key, outcome)
    return 0
  }

  /** Whether a session has scheduled calls. Throws AgentError. */
  async hasOpenCalls(sessionId: string): Promise<boolean> {
    const snapshot = await this.#load(sessionId)
    return openCalls(snapshot?.app_data.records) > 0
  }

  /** Return the snapshot of a session, or null. */
  async #load(sessionId: string): Promise<Snapshot | null> {
    const stored = await this.sessions.store.load(sessionId)
    return stored?.snapshot ? JSON.parse(stored.snapshot) : null
  }

  async #finish(sessionId: string): Promise<void> {
    this.#owned.delete(sessionId)
    if (!this.#stages.has(sessionId)) await this.index?.remove(sessionId)
  }

  // The process

  /** Note the stage of a running turn. */
  begin(stage: Stage): void {
    this.sessions = stage.session.sessions
    this.#stages.set(stage.session.id, stage)
  }

  /** Forget the stage of a turn, and continue the work of its session. */
  end(turn: Turn): void {
    const id = turn.sessionId
    const stage = this.#stages.get(id)
    if (stage?.turn === turn) {
      this.#stages.delete(id)
      this.#ids.delete(id)
      if (openCalls(stage.session.records) > 0 || this.#outcomes.get(id)?.size) this.watch(id)
    }
    for (const memory of [this.#outcomes, this.#starts]) {
      if (memory.get(id)?.size === 0) memory.delete(id)
    }
  }

  /** Finish running calls within `seconds`; leave the others to another process. */
  async close(seconds: number): Promise<void> {
    const tasks = [...this.workers.values(), ...this.running.values()]
    this.#closing.abort()
    await within(seconds, () => Promise.allSettled(tasks)).catch(() => {})
    this.#end.abort(new Error('The process ends.'))
    const unsaved = [...this.#outcomes].filter(([, { size }]) => size > 0)
    for (const id of new Set([...unsaved.map(([id]) => id), ...this.#owned])) {
      await this.save(id).catch((error) => {
        if (!(error instanceof AgentError)) throw error
        log('WARNING', `effects were not saved: ${error.type} ${error.detail}`)
      })
    }
  }
}

/** Return the time in Unix seconds. */
export function now(): number {
  return Date.now() / 1000
}

/** Whether no other process has saved a start with this key meanwhile. */
function canReplace({ call, replaces }: Start, saved: Call | undefined): boolean {
  return !saved || (isOpen(saved) && [call.owner, replaces].includes(saved.owner))
}

/** Whether the record of a call gets an outcome; another save may have been earlier. */
function changes({ status, owner, tried }: Outcome, call: Call): boolean {
  if (call.status === 'done' || status === 'done') return call.status !== 'done'
  if (owner) return isOpen(call) && call.owner === owner
  return isOpen(call) || !tried
}

/** Return the data that a turn keeps. */
export function keptOf(turn: Turn | undefined): Kept {
  return { scheduled: [], used: [], ...(turn?.kept[NAME] as Partial<Kept> | undefined) }
}

/** Return the idempotency key or the number of a turn; a repeated turn has the same identity. */
export function identityOf({ key, turn }: Stage): string {
  return key === null ? `turn ${turn.number}` : `key ${key}`
}

/** Return the number of scheduled calls in the records of a session. */
function openCalls(records: Records | undefined): number {
  const { open = 0 } = (records?.[NAME] ?? {}) as { open?: number }
  return open
}

/** Return the seconds to wait after a number of failures. */
function pauseAfter(failures: number): number {
  return randomly(Math.min(FIRST_PAUSE * 2 ** (failures - 1), MAX_PAUSE))
}

/** Return a random time between the half of `seconds` and `seconds`. */
function randomly(seconds: number): number {
  return (seconds * (1 + Math.random())) / 2
}

/** Return the message for the model about an unknown outcome. */
export function unknown({ tool, key }: Call): string {
  return (
    `It is unknown whether an earlier call of ${tool} with these arguments had its effect,` +
    ` so it does not run again. A person must settle effect ${key}.`
  )
}

/** Return a result as JSON. */
function asJson(result: unknown): unknown {
  try {
    return JSON.parse(canonical(result))
  } catch {
    return NOT_JSON
  }
}

/** Wait for a signal or `seconds`; return whether the signal has aborted. */
export async function isAbortedWithin(signal: AbortSignal, seconds: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<void>()
  const wake = () => resolve()
  const timer = setTimeout(wake, seconds * 1000)
  signal.addEventListener('abort', wake)
  if (!signal.aborted) await promise
  clearTimeout(timer)
  signal.removeEventListener('abort', wake)
  return signal.aborted
}
