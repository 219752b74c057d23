// The backends of collections: those that this project supports, and the others.

import { z } from 'zod'

import type { SecretRef } from './fields.ts'
import type { Document, Findings } from './reader.ts'
import { backend as session, S3Config } from './session_backend.ts'

/** A backend of a type that this project does not support. Its other fields are ignored. */
export const OtherConfig = z.object({
  type: z.enum(['valkey', 'custom', 'agentcore_memory', 'knowledge_base']),
})

const supported = [S3Config] as const
export const BackendConfig = z.discriminatedUnion('type', [...supported, OtherConfig])
export type BackendConfig = z.output<typeof BackendConfig>

/** The functions of a backend module. */
interface Backend {
  secretRefs(config: never): SecretRef[]
  backendFindings(document: Document, config: never, status: string, lifetime: string): Findings
}
const SUPPORTED: Partial<Record<string, Backend>> = {
  s3: session,
}

/** The template answers that add the code of a type, if they differ from its name. */
export const ANSWERS: Partial<Record<string, string>> = {
  agentcore_memory: 'long_term_memory=agentcore',
  knowledge_base: 'long_term_memory=knowledge-base',
}

/** Return the secrets to read before a collection is used. */
export function secretRefs(config: BackendConfig): SecretRef[] {
  return SUPPORTED[config.type]?.secretRefs(config as never) ?? []
}

/** Check the rules of a backend that span several fields. */
export function* backendFindings(
  document: Document,
  config: BackendConfig,
  status: string,
  lifetime: string,
): Findings {
  const backend = SUPPORTED[config.type]
  yield* backend?.backendFindings(document, config as never, status, lifetime) ?? []
}
