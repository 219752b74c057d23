// Spans of long-term memory.

import { Capability, find } from '../capability.ts'
import { LongTermMemory } from '../memory/long_term.ts'
import type { CoreSettings } from '../settings.ts'
import { traceCalls } from './calls.ts'

/** Makes a span for each search in a memory, and for each event that is recorded there. */
export class TracedMemory extends Capability {
  constructor(settings: CoreSettings, before: readonly Capability[]) {
    super(settings, before)
    const calls = ['retrieve', 'createEvent']
    find(LongTermMemory, before).wrap = (memory) => traceCalls(memory, 'memory', calls)
  }
}
