// The end of a session: turns that wait for others are recorded then.

import { Capability, findSessionClass } from '../capability.ts'
import type { Modules } from '../modules.ts'
import type { Session } from '../sessions/sessions.ts'
import type { CoreSettings } from '../settings.ts'
import { LongTermMemory } from './long_term.ts'

/** Makes the sessions of the capabilities before this one those that are recorded at the end. */
export class RecordedSessions extends Capability {
  readonly #sessionClass: typeof Session

  constructor(settings: CoreSettings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    const longTerm = before.find((capability) => capability instanceof LongTermMemory)!
    this.#sessionClass = class RecordedSession extends findSessionClass(before) {
      override async end(): Promise<void> {
        await super.end()
        longTerm.recorder.flush(this.id)
      }
    }
  }

  override sessionClass(): typeof Session {
    return this.#sessionClass
  }
}
