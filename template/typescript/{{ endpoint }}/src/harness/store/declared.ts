// Exports this project's session store as DeclaredStore.

import type { Collection } from '../collections/models.ts'
import type { Secrets } from '../collections/secrets.ts'
import type { CustomConfig } from '../collections/session_backend.ts'
import { readLimit } from './base.ts'
import { EndpointClient, EndpointStore, RestTransport } from './endpoint.ts'
import { LambdaTransport } from './endpoint_lambda.ts'
import type { StoreSettings } from './settings.ts'

/** The store that a collection declares; it connects at the first call. */
export class DeclaredStore extends EndpointStore {
  constructor(collection: Collection, agentId: string, settings: StoreSettings, secrets: Secrets) {
    const { transport: config } = collection.backend as CustomConfig
    if (!config) throw new Error(`collection '${collection.collection_id}' has no transport`)
    const maxBytes = readLimit(settings.maxSnapshotBytes)
    const transport =
      config.type === 'lambda'
        ? new LambdaTransport(config, maxBytes)
        : new RestTransport(config, maxBytes, secrets)
    super(new EndpointClient(transport, config), agentId)
  }
}
