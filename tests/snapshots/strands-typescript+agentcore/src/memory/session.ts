// The end of a session: turns that wait for others are recorded then.

import { Capability } from '../capability.ts'
import { Session } from '../sessions.ts'
import type { CoreSettings } from '../settings.ts'
import { LongTermMemory } from './long_term.ts'

/** Makes the sessions of the capabilities before this one those that are recorded at the end. */
export class RecordedSessions extends Capability {
  readonly #before: readonly Capability[]

  constructor(settings: CoreSettings, before: readonly Capability[]) {
    super(settings, before)
    this.#before = before
  }

  override sessionClass(): typeof Session {
    const classes = this.#before.flatMap((capability) => capability.sessionClass?.() ?? [])
    const longTerm = this.#before.find((capability) => capability instanceof LongTermMemory)!
    return class RecordedSession extends (classes.at(-1) ?? Session) {
      override async end(): Promise<void> {
        await super.end()
        longTerm.recorder.flush(this.id)
      }
    }
  }
}
