// Where sessions live beyond the process: Amazon S3.

import type { Collection } from '../collections/models.ts'
import type { Secrets } from '../collections/secrets.ts'
import type { DurableStore } from './base.ts'
import { S3Store } from './s3.ts'
import type { StoreSettings } from './settings.ts'

/** Open the store of a collection; it connects at the first call. */
export function openStore(
  collection: Collection,
  agentId: string,
  settings: StoreSettings,
  secrets: Secrets,
): DurableStore {
  return new S3Store(collection, agentId, settings, secrets)
}
