// Limits that all replicas share, as a capability: the counters are in the session store.

import { Capability } from '../capability.ts'
import type { Modules } from '../modules.ts'
import type { CoreSettings } from '../settings.ts'
import { StoreUnavailable } from '../store/base.ts'
import { Store } from '../store/capability.ts'
import { ValkeyStore } from '../store/valkey.ts'
import { Auth } from './capability.ts'
import { type Counters, CountersUnavailable } from './limits.ts'

// ARGV: the number to add, and the seconds to live.
const ADD = `
local number = redis.call('INCRBY', KEYS[1], ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return number
`

/** Keeps the counters in Valkey, if it is configured. */
export class SharedLimits extends Capability implements Counters {
  readonly #sessions: Store
  readonly #auth: Auth
  #store: ValkeyStore | null = null

  constructor(settings: CoreSettings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    this.#sessions = before.find((capability) => capability instanceof Store)!
    this.#auth = before.find((capability) => capability instanceof Auth)!
  }

  override async open(): Promise<void> {
    const { collection, store } = this.#sessions
    const connected = store && collection ? this.#sessions.connect(collection) : null
    if (!(connected instanceof ValkeyStore)) return
    this.#store = connected
    this.#auth.limits.counters = this
  }

  async add(name: string, number: number, seconds: number): Promise<number> {
    const key = `limits:${name}:agent:${this.#sessions.declarations.project.agentId}`
    try {
      return Number(await this.#store!.evaluate(ADD, [key], number, seconds))
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error
      throw new CountersUnavailable(error.message)
    }
  }

  override async close(): Promise<void> {
    await this.#store?.close()
  }
}
