// The collection fields of a Bedrock knowledge base.

import { z } from 'zod'

import { forms, missingAddress, type SecretRef } from './fields.ts'
import { checkRetrieval, RetrievalConfig } from './memory_backend.ts'
import type { Document, Findings } from './reader.ts'

const ID = /^[0-9a-zA-Z]{10}$/
const IdReference = forms.reference
  .refine((value) => !ID.test(value), 'Input should be a reference, not a Bedrock id')
  .optional()

export const KnowledgeBaseConfig = z.strictObject({
  type: z.literal('knowledge_base'),
  knowledge_base_id_secret: IdReference,
  data_source_id_secret: IdReference, // type CUSTOM; required for writing
  region: forms.region,
  search: z.enum(['vector', 'managed']).default('vector'), // the type of the knowledge base
  extraction: z.enum(['model', 'none']).default('model'),
  retrieval_config: RetrievalConfig.optional(),
})

export type KnowledgeBaseConfig = z.output<typeof KnowledgeBaseConfig>

export const backend = { secretRefs, backendFindings }

/** Return the secrets to read before the collection is used. */
function secretRefs(config: KnowledgeBaseConfig): SecretRef[] {
  return (['knowledge_base_id_secret', 'data_source_id_secret'] as const).flatMap((name) => {
    const reference = config[name]
    const path = ['backend', name]
    return reference ? [{ reference, key: null, region: null, path }] : []
  })
}

/** Check the rules that span several fields. */
function* backendFindings(
  document: Document,
  config: KnowledgeBaseConfig,
  status: string,
  lifetime: string,
): Findings {
  if (!config.knowledge_base_id_secret) {
    yield* missingAddress(document, 'knowledge_base_id_secret', status)
  }
  if (!config.data_source_id_secret && isWritten(document)) {
    yield* missingAddress(document, 'data_source_id_secret', status)
  }
  if (lifetime === 'session') {
    const message = 'knowledge_base does not store lifetime session: use valkey or s3.'
    yield document.finding('AML-E043', message, 'backend', 'type')
  }
  const place = ['backend', 'retrieval_config']
  if (config.retrieval_config === undefined) {
    const owner = lifetime === 'user' ? 'actor' : 'project'
    const message = `backend.retrieval_config is missing: one namespace for each ${owner} applies.`
    yield document.finding('AML-W207', message, ...place)
  }
  for (const namespace of Object.keys(config.retrieval_config ?? {})) {
    if (!namespace.endsWith('/*')) continue
    const message = 'A knowledge base matches complete namespaces only: remove /*.'
    yield document.finding('AML-E052', message, ...place, namespace)
  }
  const [, ...unwritten] = Object.keys(config.retrieval_config ?? {})
  for (const namespace of isWritten(document) ? unwritten : []) {
    const message = `No turns are recorded in ${namespace}: turns go to the first namespace only.`
    yield document.finding('AML-W223', message, ...place, namespace)
  }
  yield* checkRetrieval(document, config.retrieval_config, lifetime)
}

function isWritten({ data }: Document): boolean {
  const { writeback } = data as { writeback?: { enabled?: boolean } }
  return writeback?.enabled === true
}
