// The collection fields of AgentCore Memory.

import { z } from 'zod'

import { forms, missingAddress, type SecretRef, whole } from './fields.ts'
import { checkRetrieval, PLACEHOLDERS, RetrievalConfig } from './memory_backend.ts'
import type { Document, Findings } from './reader.ts'

// A memory's id looks like a path, but is not a reference to a secret. AWS appends ten random
// letters and digits to its name; a word of ten lower-case letters, such as "identifier", is not
// random.
const MEMORY_ID = /^[A-Za-z][A-Za-z0-9_-]{0,99}-(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{10}$/

export const AgentCoreConfig = z.strictObject({
  type: z.literal('agentcore_memory'),
  memory_id_secret: forms.reference
    .refine((value) => !MEMORY_ID.test(value), "Input should be a reference, not a memory's id")
    .optional(),
  region: forms.region,
  retrieval_config: RetrievalConfig.optional(),
  batch_size: whole(1, 100).default(1),
})

export type AgentCoreConfig = z.output<typeof AgentCoreConfig>

export const backend = { secretRefs, backendFindings }

/** Return the secrets to read before the collection is used. */
function secretRefs({ memory_id_secret: reference }: AgentCoreConfig): SecretRef[] {
  const path = ['backend', 'memory_id_secret']
  return reference ? [{ reference, key: null, region: null, path }] : []
}

/** Check the rules that span several fields. */
function* backendFindings(
  document: Document,
  { memory_id_secret: id, retrieval_config: config }: AgentCoreConfig,
  status: string,
  lifetime: string,
): Findings {
  if (!id) yield* missingAddress(document, 'memory_id_secret', status)
  if (lifetime === 'session') {
    const message = 'agentcore_memory does not store lifetime session: use valkey or s3.'
    yield document.finding('AML-E043', message, 'backend', 'type')
  }
  if (config === undefined) {
    const message = "backend.retrieval_config is missing: the memory's own namespaces apply."
    yield document.finding('AML-W207', message, 'backend', 'retrieval_config')
  }
  const placeholders = [...PLACEHOLDERS, '{memoryStrategyId}']
  yield* checkRetrieval(document, config, lifetime, placeholders)
}
