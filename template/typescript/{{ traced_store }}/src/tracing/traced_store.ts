// Spans of the session store.

import { Capability, find } from '../capability.ts'
import type { CoreSettings } from '../settings.ts'
import { Store } from '../store/capability.ts'
import { traceCalls } from './calls.ts'

/** Makes a span for each call of the session store. */
export class TracedStore extends Capability {
  constructor(settings: CoreSettings, before: readonly Capability[]) {
    super(settings, before)
    const calls = ['load', 'save', 'end']
    find(Store, before).wrap = (store) => traceCalls(store, 'session_store', calls)
  }
}
