// Long-term memory in a Bedrock knowledge base: the fields of its collection.

import { z } from 'zod'

import { forms, missingAddress, type SecretRef } from './fields.ts'
import { checkRetrieval, RetrievalConfig } from './memory_backend.ts'
import type { Document, Findings } from './reader.ts'

const ID = /^[0-9a-zA-Z]{10}$/
const IdReference = forms.reference
  .refine((value) => !ID.test(value), 'Input should be a reference, not an id of Bedrock')
  .optional()

export const KnowledgeBaseConfig = z.strictObject({
  type: z.literal('knowledge_base'),
  knowledge_base_id_secret: IdReference,
  data_source_id_secret: IdReference, // one of type CUSTOM; needed to write
  region: forms.region,
  search: z.enum(['vector', 'managed']).default('vector'), // the type of the knowledge base
  extraction: z.enum(['model', 'none']).default('model'),
  retrieval_config: RetrievalConfig.optional(),
})

export type KnowledgeBaseConfig = z.output<typeof KnowledgeBaseConfig>

export const backend = { secretRefs, backendFindings }

/** Return the references that are read before the collection is used. */
function secretRefs(config: KnowledgeBaseConfig): SecretRef[] {
  return (['knowledge_base_id_secret', 'data_source_id_secret'] as const).flatMap((name) => {
    const [reference, path] = [config[name], ['backend', name]]
    return reference ? [{ reference, key: null, region: null, path }] : []
  })
}

/** Check what concerns more than one field. */
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
    const whose = lifetime === 'user' ? 'actor' : 'project'
    const message = `backend.retrieval_config is missing: one namespace for each ${whose} applies.`
    yield document.finding('AML-W207', message, ...place)
  }
  for (const namespace of Object.keys(config.retrieval_config ?? {})) {
    if (!namespace.endsWith('/*')) continue
    const message = 'A knowledge base finds a namespace by its whole name: remove /*.'
    yield document.finding('AML-E052', message, ...place, namespace)
  }
  const [, ...unwritten] = Object.keys(config.retrieval_config ?? {})
  for (const namespace of isWritten(document) ? unwritten : []) {
    const message = `No turn is recorded in ${namespace}: only the first namespace is written to.`
    yield document.finding('AML-W223', message, ...place, namespace)
  }
  yield* checkRetrieval(document, config.retrieval_config, lifetime)
}

function isWritten({ data }: Document): boolean {
  const { writeback } = data as { writeback?: { enabled?: boolean } }
  return writeback?.enabled === true
}
