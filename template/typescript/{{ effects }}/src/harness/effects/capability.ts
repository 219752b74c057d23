// Effects that happen once, as a capability.

import { Capability } from '../capability.ts'
import { Data, type Turn } from '../contract.ts'
import { diagnostic, type Finding } from '../findings.ts'
import type { Modules, Runtime } from '../modules.ts'
import { InProcess } from '../sessions/session_store.ts'
import type { LastTurn, Records, Session, Stage } from '../sessions/sessions.ts'
import { TurnCalls } from './calls.ts'
import { FUNCTIONS, IN_TURN } from './functions.ts'
import { keptOf, Outbox } from './outbox.ts'
import { SKEW_SECONDS } from './records.ts'
import type { EffectSettings } from './settings.ts'

const NOT_STORED =
  'Sessions are in this process: a restart loses open effects. Choose a session store.'

/** Runs the calls of `afterCommit` and `once`. */
export class Effects extends Capability<EffectSettings> {
  readonly outbox: Outbox
  readonly #before: readonly Capability[]

  constructor(settings: EffectSettings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    this.outbox = new Outbox(settings)
    this.#before = before
  }

  override isBusy(): boolean {
    return this.outbox.isBusy
  }

  get #isStored(): boolean {
    const [store] = this.#before.flatMap((capability) => capability.sessionStore?.() ?? [])
    return store !== undefined && !(store instanceof InProcess)
  }

  override async check(): Promise<Finding[]> {
    if (this.#isStored) return []
    await this.load.agent() // registers the effects
    return FUNCTIONS.size > 0 ? [diagnostic('EFFECTS', NOT_STORED, 'warning')] : []
  }

  override describe(): string[] {
    return this.#isStored || FUNCTIONS.size === 0 ? [] : [`Warning: ${NOT_STORED}`]
  }

  override async open({ sessions }: Runtime): Promise<void> {
    this.outbox.sessions = sessions
  }

  override async close(): Promise<void> {
    await this.outbox.close(this.settings.shutdownGraceSeconds)
  }

  override async around(turn: Turn, run: () => Promise<unknown>): Promise<void> {
    try {
      await run()
    } finally {
      this.outbox.end(turn)
    }
  }

  override async turnBegun(stage: Stage): Promise<void> {
    this.outbox.begin(stage)
    IN_TURN.set(stage.turn, new TurnCalls(this.outbox, stage))
    if (keptOf(stage.turn).scheduled.length > 0) {
      await this.outbox.index?.add(stage.session.id, SKEW_SECONDS) // it waited for an approval
    }
  }

  override beforeSave(session: Session, last: LastTurn & { records: Records }, turn?: Turn): void {
    const { shown = [] } = (turn && IN_TURN.get(turn)) ?? {}
    this.outbox.update(session, last, turn, new Set(shown.map(({ key }) => key)))
  }

  /** Send the results that the turn has shown to the model, and run the calls of the turn. */
  override committed(turn: Turn): void {
    for (const { key, tool, status, result } of IN_TURN.get(turn)?.shown ?? []) {
      turn.emit(new Data('effect', { key, tool, status, result })).catch(() => {}) // gone
    }
    if (keptOf(turn).scheduled.length > 0) this.outbox.watch(turn.sessionId)
  }
}
