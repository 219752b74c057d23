// The session store: an endpoint of your own.

import type { Collection } from '../collections/models.ts'
import type { Secrets } from '../collections/secrets.ts'
import type { CustomConfig } from '../collections/session_backend.ts'
import { EndpointClient, EndpointStore, RestTransport } from './endpoint.ts'
import { LambdaTransport } from './endpoint_lambda.ts'
import type { StoreSettings } from './settings.ts'

const LEAST_READ = 67_108_864 // bytes of an answer

/** The store of a collection; it connects at the first call. */
export class DeclaredStore extends EndpointStore {
  constructor(collection: Collection, agentId: string, settings: StoreSettings, secrets: Secrets) {
    const { transport: declared } = collection.backend as CustomConfig
    if (!declared) throw new Error(`collection '${collection.collection_id}' has no transport`)
    // Escapes make JSON longer, and MAX_SNAPSHOT_BYTES may have been larger at the last save.
    const maxBytes = Math.max(8 * settings.maxSnapshotBytes, LEAST_READ)
    const transport =
      declared.type === 'lambda'
        ? new LambdaTransport(declared, maxBytes)
        : new RestTransport(declared, maxBytes, secrets)
    super(new EndpointClient(transport, declared), agentId)
  }
}
