// The session store: an endpoint of your own.

import type { Collection } from '../collections/models.ts'
import type { Secrets } from '../collections/secrets.ts'
import type { CustomConfig } from '../collections/session_backend.ts'
import { readLimit } from './base.ts'
import { EndpointClient, EndpointStore, RestTransport } from './endpoint.ts'
import { LambdaTransport } from './endpoint_lambda.ts'
import type { StoreSettings } from './settings.ts'

/** The store of a collection; it connects at the first call. */
export class DeclaredStore extends EndpointStore {
  constructor(collection: Collection, agentId: string, settings: StoreSettings, secrets: Secrets) {
    const { transport: declared } = collection.backend as CustomConfig
    if (!declared) throw new Error(`collection '${collection.collection_id}' has no transport`)
    const maxBytes = readLimit(settings.maxSnapshotBytes)
    const transport =
      declared.type === 'lambda'
        ? new LambdaTransport(declared, maxBytes)
        : new RestTransport(declared, maxBytes, secrets)
    super(new EndpointClient(transport, declared), agentId)
  }
}
