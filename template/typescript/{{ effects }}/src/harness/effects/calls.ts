// The calls of effects in a turn.

import type { Data, Stage } from '../sessions/sessions.ts'
import { canonical, type EffectFunction, Rejected } from './functions.ts'
import { identityOf, type Kept, keptOf, now, type Outbox } from './outbox.ts'
import { StartedElsewhere, unknown } from './outbox.ts'
import { adopt, type Call, digestOf, isOf, isOpen, NAME, newId, newKey } from './records.ts'
import { readCall, type Section, SKEW_SECONDS, type Status } from './records.ts'

const DONE = 'Done after the turn was saved: '
const FAILED = 'This failed after the turn was saved, and is not retried: '

/** A call of `once`, and its result if it is running. */
interface StartedCall {
  readonly call: Call
  readonly running: Promise<unknown> | undefined
}

/** Records the calls of effects of a running turn. */
export class TurnCalls {
  /** The calls whose results this turn has shown to the model. */
  readonly shown: readonly Call[]
  readonly #outbox: Outbox
  readonly #stage: Stage
  #starting: Promise<unknown> = Promise.resolve()

  constructor(outbox: Outbox, stage: Stage) {
    this.#outbox = outbox
    this.#stage = stage
    this.shown = this.#showResults()
  }

  /** Show the model the results of scheduled calls, and return these calls. */
  #showResults(): Call[] {
    const { data, session } = this.#stage
    const { calls } = this.#outbox.view(session)
    const results = calls.filter((call) => call.kind === 'after_commit' && !isOpen(call))
    const texts = new Map(results.map((call) => [scheduled(call), textOf(call)]))
    if (texts.size > 0) this.#stage.data = replaced(data, texts) as Data
    for (const call of calls) {
      const isLost = call.status === 'started' && !this.#outbox.running.has(call.key)
      if (call.status === 'unknown' || isLost) {
        this.#outbox.report(session.id, call, 'its outcome is unknown')
      }
    }
    return results
  }

  get #identity(): string {
    return identityOf(this.#stage)
  }

  get #kept(): Kept {
    const { turn } = this.#stage
    const kept = keptOf(turn)
    turn.kept[NAME] = kept
    return kept
  }

  /** Record a call to run after the commit. Throws an Error above a limit. */
  async schedule(effect: EffectFunction, args: string): Promise<string> {
    this.#stage.turn.signal.throwIfAborted()
    const call = this.#newCall(effect, args, newId(), 'scheduled')
    this.#checkRoom(this.#outbox.view(this.#stage.session), call)
    const isFirst = this.#kept.scheduled.length === 0
    this.#kept.scheduled.push(call)
    // Before the commit: the process may end right after it.
    if (isFirst) await this.#outbox.index?.add(this.#stage.session.id, SKEW_SECONDS)
    return scheduled(call)
  }

  /**
   * Run a call, or return the recorded result of an identical call.
   *
   * That call is of an earlier try of the turn, or its outcome was unknown to an earlier turn.
   *
   * Throws an Error if the outcome of an earlier call is unknown, above a limit, or if the start of
   * the call cannot be saved. The end of the turn does not stop a started call.
   */
  async runOnce(effect: EffectFunction, args: string): Promise<unknown> {
    const starting = this.#starting.then(() => this.#findOrStart(effect, args))
    this.#starting = starting.catch(() => {})
    const { call, running } = await starting
    if (running) {
      return await running.catch((error) => {
        // After a rejection, the receiver may repeat its answer to this key.
        if (!(error instanceof Rejected)) this.#releaseUnfinished(call.key)
        throw error
      })
    }
    if (call.status === 'failed') throw new Error(String(call.result))
    return call.result
  }

  async #findOrStart(effect: EffectFunction, args: string): Promise<StartedCall> {
    const outbox = this.#outbox
    const { session, turn } = this.#stage
    turn.signal.throwIfAborted()
    const digest = digestOf(effect.name, args)
    const section = outbox.view(session)
    let call = this.#find(section, digest)
    const replaces = call?.owner ?? ''
    if (call) {
      const running = outbox.running.get(call.key)
      if (isOpen(call) && !running) await this.#resolve(effect, call)
      this.#use(call.key)
      if (running && !isOf(call, this.#identity)) outbox.adopted.add(call.key)
      if (running || !isOpen(call)) return { call, running }
      adopt(call, this.#identity)
    } else {
      const key = newKey(section, this.#identity, digest, this.#kept.used)
      call = this.#newCall(effect, args, key, 'started')
      this.#checkRoom(section, call)
      this.#use(key)
    }
    call.status = 'started'
    call.at = now()
    call.owner = outbox.id
    call.until = call.at + outbox.settings.effectTimeoutSeconds
    try {
      await outbox.start(session, effect, call, replaces, turn.signal)
    } catch (error) {
      if (!(error instanceof StartedElsewhere)) throw error
      this.#release(call.key)
      return this.#findOrStart(effect, args)
    }
    return { call, running: outbox.running.get(call.key) }
  }

  /** Return the recorded call whose outcome the model's next call gets. */
  #find({ calls }: Section, digest: string): Call | undefined {
    const { used } = this.#kept
    const same = calls.filter((call) => call.kind === 'once' && call.digest === digest)
    const unused = same.filter(({ key }) => !used.includes(key))
    // The model has asked for another call.
    const runsBeside = ({ key }: Call) => used.includes(key) && this.#outbox.running.has(key)
    return (
      unused.find((call) => isOf(call, this.#identity)) ??
      // Another call whose outcome is unknown may have had the effect that this call wants.
      same.find((call) => isOpen(call) && !runsBeside(call)) ??
      unused.find(({ wanted }) => wanted)
    )
  }

  #use(key: string): void {
    const { used } = this.#kept
    if (!used.includes(key)) used.push(key)
  }

  /** Let the next identical call get a later outcome, or run with the same key. */
  #releaseUnfinished(key: string): void {
    const call = this.#outbox.view(this.#stage.session).find(key)
    if (!call || isOpen(call)) this.#release(key)
  }

  #release(key: string): void {
    const kept = this.#kept
    kept.used = kept.used.filter((other) => other !== key)
  }

  /**
   * Set the outcome of a started call; it stays open if it had no effect and may run again.
   *
   * Throws an Error if the outcome is unknown.
   */
  async #resolve(effect: EffectFunction, call: Call): Promise<void> {
    const outbox = this.#outbox
    const { id } = this.#stage.session
    const outcome = await outbox.resolve(id, effect, call)
    const seconds = call.until + SKEW_SECONDS - now()
    const mayRun = call.status === 'started' && call.owner !== outbox.id && seconds > 0
    if (outcome.status === 'removed') {
      if (mayRun) {
        const message = `An earlier call of ${call.tool} may still be running. Repeat the turn`
        throw new Error(`${message} in ${Math.floor(seconds) + 1} seconds.`)
      }
      return
    }
    const isUnknown = outcome.status === 'unknown'
    // The process of a call that may run can still record the outcome.
    if (isUnknown && mayRun) throw new Error(unknown(call))
    // If this turn fails, its repetition finds the outcome of a call of another turn.
    const wanted = !isUnknown && !isOf(call, this.#identity)
    outbox.outcomesOf(id).set(call.key, { ...outcome, wanted })
    if (isUnknown) throw new Error(unknown(call))
    call.status = 'done'
    call.result = outcome.result
  }

  #newCall(effect: EffectFunction, args: string, key: string, status: Status): Call {
    return readCall({
      key,
      kind: effect.kind,
      tool: effect.name,
      arguments: JSON.parse(args),
      digest: digestOf(effect.name, args),
      turn: this.#stage.turn.number,
      identity: this.#identity,
      status,
      at: now(),
    })
  }

  /** Throw an Error if the limits leave no room for a call. */
  #checkRoom(section: Section, call: Call): void {
    for (const other of [...this.#kept.scheduled, call]) section.put(other)
    if (this.#outbox.makeRoom(this.#stage.session.id, section)) return
    const { maxEffects, maxEffectBytes } = this.#outbox.settings
    const limits = `MAX_EFFECTS=${maxEffects}, MAX_EFFECT_BYTES=${maxEffectBytes}`
    const problem = 'the open effects of this session and those of this turn leave no room'
    throw new Error(`${call.tool} did not run: ${problem} (${limits}).`)
  }
}

/** Return the result for the model of a call that has not run. */
function scheduled({ key }: Call): string {
  return `Scheduled: this runs when the turn is saved. Effect ${key}.`
}

/** Return the result of a scheduled call for the model. */
function textOf({ status, result }: Call): string {
  const text = typeof result === 'string' ? result : canonical(result)
  return (status === 'failed' ? FAILED : DONE) + text
}

/** Return a JSON value with whole strings replaced. */
function replaced(value: unknown, texts: ReadonlyMap<string, string>): unknown {
  if (typeof value === 'string') return texts.get(value) ?? value
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) return value.map((item) => replaced(item, texts))
  const fields = Object.entries(value).map(([name, field]) => [name, replaced(field, texts)])
  return Object.fromEntries(fields)
}
