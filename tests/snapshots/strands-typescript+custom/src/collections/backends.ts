// The backends that this project has code for, and the others that a file may name.

import { z } from 'zod'

import type { SecretRef } from './fields.ts'
import type { Document, Findings } from './reader.ts'
import * as session from './session_backend.ts'

/** A backend of a type that this project has no code for. Its other fields are not read. */
export const OtherConfig = z.object({ type: z.enum(['valkey', 's3', 'agentcore_memory']) })

export const BackendConfig = z.discriminatedUnion('type', [session.CustomConfig, OtherConfig])
export type BackendConfig = z.output<typeof BackendConfig>

/** Return the references that are read before a collection is used. */
export function secretRefs(config: BackendConfig): SecretRef[] {
  if (config.type === 'custom') return session.secretRefs(config)
  return []
}

/** Check what concerns more than one field of a backend. */
export function* backendFindings(
  document: Document,
  config: BackendConfig,
  status: string,
  lifetime: string,
): Findings {
  if (config.type === 'custom') {
    yield* session.backendFindings(document, config, status, lifetime)
  }
}
