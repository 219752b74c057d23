// Long-term memory in AgentCore Memory: the fields of its collection.

import { z } from 'zod'

import { forms, missingAddress, type SecretRef, whole } from './fields.ts'
import type { Document, Findings } from './reader.ts'

// The id of a memory looks like a path, and is no reference to a secret.
const MEMORY_ID = /^[A-Za-z][A-Za-z0-9_-]{0,99}-[A-Za-z0-9]{10}$/
const NAMESPACE = /^(?=.{1,512}$)\/?[A-Za-z0-9_{}-]+(\/[A-Za-z0-9_{}-]+)*(\/\*?)?$/
const PLACEHOLDER = /\{(?:actorId|projectId|sessionId|memoryStrategyId)\}/g
// In {actorId}-{sessionId}, actor a-b with session c has the namespace of actor a with b-c.
const AMBIGUOUS = /\{actorId\}[^/{]*\{|\}[^/{}]*\{actorId\}/
const MAX_RECORDS = 100
const MAX_KEYS = 15 // of an event
export const MAX_FILTERS = 5 // of a search
const KEY = /^[a-zA-Z0-9 \t\n\v\f\r.:/=+@-][a-zA-Z0-9 \t\n\v\f\r._:/=+@-]{0,127}$/
const VALUE = /^[a-zA-Z0-9 \t\n\v\f\r._:/=+@-]{0,256}$/
const CHARS = 'of A-Z a-z 0-9, spaces and . _ : / = + @ -'

/** A mapping as a Map: zod's own record type would skip the key __proto__. */
function asMap(value: unknown): unknown {
  const isMapping = typeof value === 'object' && value !== null && !Array.isArray(value)
  return isMapping ? new Map(Object.entries(value)) : value
}

export const NamespaceConfig = z.strictObject({
  top_k: whole(1, 1000).default(10),
  relevance_score: z.number().min(0).max(1).default(0.2),
  metadata: z
    .preprocess(asMap, z.map(z.string(), z.unknown()))
    .transform((metadata) => Object.fromEntries(metadata) as Record<string, string>)
    .default({}),
})

export const AgentCoreConfig = z.strictObject({
  type: z.literal('agentcore_memory'),
  memory_id_secret: forms.reference
    .refine((value) => !MEMORY_ID.test(value), "Input should be a reference, not a memory's id")
    .optional(),
  region: forms.region,
  retrieval_config: z
    .preprocess(asMap, z.map(z.string(), NamespaceConfig))
    .refine((config) => config.size > 0, 'Input should have at least one namespace')
    .transform((config) => Object.fromEntries(config))
    .optional(),
  batch_size: whole(1, 100).default(1),
})

export type NamespaceConfig = z.output<typeof NamespaceConfig>
export type AgentCoreConfig = z.output<typeof AgentCoreConfig>

export const backend = { secretRefs, backendFindings }

/** Return the references that are read before the collection is used. */
function secretRefs({ memory_id_secret: reference }: AgentCoreConfig): SecretRef[] {
  const path = ['backend', 'memory_id_secret']
  return reference ? [{ reference, key: null, region: null, path }] : []
}

/** Check what concerns more than one field. */
function* backendFindings(
  document: Document,
  { memory_id_secret: id, retrieval_config: config, batch_size: size }: AgentCoreConfig,
  status: string,
  lifetime: string,
): Findings {
  const place = ['backend', 'retrieval_config']
  if (!id) yield* missingAddress(document, 'memory_id_secret', status)
  if (lifetime === 'session') {
    const message = 'agentcore_memory does not store lifetime session: use valkey or s3.'
    yield document.finding('AML-E043', message, 'backend', 'type')
  }
  if (config === undefined) {
    const message = "backend.retrieval_config is missing: the memory's own namespaces apply."
    yield document.finding('AML-W207', message, ...place)
  }
  if (size > 1) {
    const message = `With batch_size ${size}, a killed process loses unsent messages.`
    yield document.finding('AML-W225', message, 'backend', 'batch_size')
  }
  for (const [namespace, { top_k: topK, metadata }] of Object.entries(config ?? {})) {
    for (const [id, message] of checkNamespace(namespace, lifetime)) {
      yield document.finding(id, message, ...place, namespace)
    }
    if (topK > MAX_RECORDS) {
      const message = `top_k ${topK} is reduced to AgentCore's maximum, ${MAX_RECORDS}.`
      yield document.finding('AML-W220', message, ...place, namespace, 'top_k')
    }
    const problem = metadataProblem(metadata, MAX_FILTERS)
    if (problem) {
      yield document.finding('AML-E05C', `Metadata: ${problem}.`, ...place, namespace, 'metadata')
    }
  }
}

/** Return which rule of AgentCore metadata breaks, or ''. */
export function metadataProblem(metadata: Record<string, unknown>, most = MAX_KEYS): string {
  const all = Object.entries(metadata)
  if (all.length > most) return `it has ${all.length} keys, ${most} are allowed`
  for (const [key, value] of all) {
    if (!KEY.test(key)) return `key ${key} must be 1 to 128 ${CHARS}, and not begin with _`
    if (typeof value !== 'string' || !VALUE.test(value)) {
      return `the value of ${key} must be up to 256 ${CHARS}`
    }
  }
  return ''
}

function* checkNamespace(namespace: string, lifetime: string): Generator<[string, string]> {
  if (!NAMESPACE.test(namespace)) {
    const form = 'parts of A-Z a-z 0-9 _ - between slashes, and may end in /*'
    return yield ['AML-E052', `Namespace ${namespace} must consist of ${form}.`]
  }
  if (/[{}]/.test(namespace.replace(PLACEHOLDER, ''))) {
    const names = '{actorId}, {projectId}, {sessionId} and {memoryStrategyId}'
    return yield ['AML-E053', `Only ${names} are placeholders of a namespace.`]
  }
  if (AMBIGUOUS.test(namespace)) {
    const rule = 'A slash must separate {actorId} from the next placeholder'
    return yield ['AML-E05B', `${rule}: otherwise two actors can share a namespace.`]
  }
  const [hasActor, hasProject] = ['{actorId}', '{projectId}'].map((it) => namespace.includes(it))
  const own = `this collection has lifetime ${lifetime}.`
  if (lifetime === 'project') {
    if (hasActor) yield ['AML-W221', `{actorId} belongs to lifetime user, and ${own}`]
    if (!hasProject) yield ['AML-W228', 'All projects share this namespace: add {projectId}.']
  }
  if (lifetime === 'user') {
    if (hasProject) yield ['AML-W221', `{projectId} belongs to lifetime project, and ${own}`]
    if (!hasActor) yield ['AML-E231', 'All users share this namespace: add {actorId}.']
  }
}
