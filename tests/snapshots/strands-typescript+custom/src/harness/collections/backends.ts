// The backends that this project has code for, and the others that a file may name.

import { z } from 'zod'

import type { SecretRef } from './fields.ts'
import type { Document, Findings } from './reader.ts'
import { backend as session, CustomConfig } from './session_backend.ts'

/** A backend of a type that this project has no code for. Its other fields are not read. */
export const OtherConfig = z.object({
  type: z.enum(['valkey', 's3', 'agentcore_memory', 'knowledge_base']),
})

const own = [CustomConfig] as const
export const BackendConfig = z.discriminatedUnion('type', [...own, OtherConfig])
export type BackendConfig = z.output<typeof BackendConfig>

/** What this project does with the fields of a backend. */
interface Backend {
  secretRefs(config: never): SecretRef[]
  backendFindings(document: Document, config: never, status: string, lifetime: string): Findings
}
const OWN: Partial<Record<string, Backend>> = {
  custom: session,
}

/** The answers that bring the code of a type, where they are not its name. */
export const ANSWERS: Partial<Record<string, string>> = {
  agentcore_memory: 'long_term_memory=agentcore',
  knowledge_base: 'long_term_memory=knowledge-base',
}

/** Return the references that are read before a collection is used. */
export function secretRefs(config: BackendConfig): SecretRef[] {
  return OWN[config.type]?.secretRefs(config as never) ?? []
}

/** Check what concerns more than one field of a backend. */
export function* backendFindings(
  document: Document,
  config: BackendConfig,
  status: string,
  lifetime: string,
): Findings {
  yield* OWN[config.type]?.backendFindings(document, config as never, status, lifetime) ?? []
}
