// The backends of collections: those that this project supports, and the others.

import { z } from 'zod'

import { AgentCoreConfig, backend as agentcore } from './agentcore_backend.ts'
import type { SecretRef } from './fields.ts'
import { backend as knowledgeBase, KnowledgeBaseConfig } from './knowledge_base_backend.ts'
import type { Document, Findings } from './reader.ts'
import { backend as session, ValkeyConfig } from './session_backend.ts'

/** A backend of a type that this project does not support. Its other fields are ignored. */
export const OtherConfig = z.object({
  type: z.enum(['s3', 'custom']),
})

const supported = [ValkeyConfig, AgentCoreConfig, KnowledgeBaseConfig] as const
export const BackendConfig = z.discriminatedUnion('type', [...supported, OtherConfig])
export type BackendConfig = z.output<typeof BackendConfig>

/** The functions of a backend module. */
interface Backend {
  secretRefs(config: never): SecretRef[]
  backendFindings(document: Document, config: never, status: string, lifetime: string): Findings
}
const SUPPORTED: Partial<Record<string, Backend>> = {
  valkey: session,
  agentcore_memory: agentcore,
  knowledge_base: knowledgeBase,
}

/** The template answers that add the code of a type, if they differ from its name. */
export const ANSWERS: Partial<Record<string, string>> = {
  agentcore_memory: 'long_term_memory=agentcore-and-knowledge-base',
  knowledge_base: 'long_term_memory=agentcore-and-knowledge-base',
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
