// Where sessions live beyond the process: Valkey or Redis.

import type { Collection } from '../collections/models.ts'
import type { Secrets } from '../collections/secrets.ts'
import type { DurableStore } from './base.ts'
import type { StoreSettings } from './settings.ts'
import { ValkeyStore } from './valkey.ts'

/** Open the store of a collection; it connects at the first call. */
export function openStore(
  collection: Collection,
  agentId: string,
  settings: StoreSettings,
  secrets: Secrets,
): DurableStore {
  return new ValkeyStore(collection, agentId, settings, secrets)
}
