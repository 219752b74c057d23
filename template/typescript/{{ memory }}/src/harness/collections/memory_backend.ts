// The collection fields that all kinds of long-term memory share.

import { z } from 'zod'

import { whole } from './fields.ts'
import type { Document, Findings } from './reader.ts'

const NAMESPACE = /^(?=.{1,512}$)\/?[A-Za-z0-9_{}-]+(\/[A-Za-z0-9_{}-]+)*(\/\*?)?$/
export const PLACEHOLDERS = ['{actorId}', '{projectId}', '{sessionId}']
// {actorId}-{sessionId} is ambiguous: actor a-b with session c equals actor a with session b-c.
const AMBIGUOUS = /\{actorId\}[^/{]*\{|\}[^/{}]*\{actorId\}/
const MAX_RECORDS = 100
const MAX_KEYS = 15 // per event
export const MAX_FILTERS = 5 // per search
const KEY = /^[a-zA-Z0-9 \t\n\v\f\r.:/=+@-][a-zA-Z0-9 \t\n\v\f\r._:/=+@-]{0,127}$/
const VALUE = /^[a-zA-Z0-9 \t\n\v\f\r._:/=+@-]{0,256}$/
const CHARS = 'of A-Z a-z 0-9, spaces and . _ : / = + @ -'

/** Return a mapping as a Map: zod's record type would skip the key __proto__. */
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

export const RetrievalConfig = z
  .preprocess(asMap, z.map(z.string(), NamespaceConfig))
  .refine((config) => config.size > 0, 'Input should have at least one namespace')
  .transform((config) => Object.fromEntries(config))

export type NamespaceConfig = z.output<typeof NamespaceConfig>
export type RetrievalConfig = z.output<typeof RetrievalConfig>
export const DEFAULT = NamespaceConfig.parse({})
export const BATCH_SIZE = 100

/** The fields that all kinds of memory use. */
export interface MemoryConfig {
  readonly retrieval_config?: RetrievalConfig | undefined
  /** Maximum number of texts per event that joins several turns; undefined: BATCH_SIZE. */
  readonly batch_size?: number
  readonly extraction?: 'model' | 'none'
}

/** Check the namespaces of a collection; `placeholders` are the allowed placeholders. */
export function* checkRetrieval(
  document: Document,
  config: RetrievalConfig | undefined,
  lifetime: string,
  placeholders: readonly string[] = PLACEHOLDERS,
): Findings {
  const place = ['backend', 'retrieval_config']
  for (const [namespace, { top_k: topK, metadata }] of Object.entries(config ?? {})) {
    for (const [id, message] of checkNamespace(namespace, lifetime, placeholders)) {
      yield document.finding(id, message, ...place, namespace)
    }
    if (topK > MAX_RECORDS) {
      const message = `top_k ${topK} is reduced to the service's maximum, ${MAX_RECORDS}.`
      yield document.finding('AML-W220', message, ...place, namespace, 'top_k')
    }
    const problem = filterProblem(metadata)
    if (problem) {
      yield document.finding('AML-E05C', `Metadata: ${problem}.`, ...place, namespace, 'metadata')
    }
  }
}

/** Return the rule of AgentCore that a text's metadata breaks, or ''. */
export function metadataProblem(metadata: Record<string, unknown>, limit = MAX_KEYS): string {
  const all = Object.entries(metadata)
  if (all.length > limit) return `it has ${all.length} keys; at most ${limit} are allowed`
  for (const [key, value] of all) {
    if (!KEY.test(key)) return `key ${key} must be 1 to 128 ${CHARS} and not begin with _`
    if (typeof value !== 'string' || !VALUE.test(value)) {
      return `the value of ${key} must be up to 256 ${CHARS}`
    }
  }
  return ''
}

/** Return the rule that the metadata of a search breaks, or ''. */
export function filterProblem(metadata: Record<string, unknown>): string {
  for (const [key, value] of Object.entries(metadata)) {
    if (value === '') return `the value of ${key} is empty; a search needs a value`
  }
  return metadataProblem(metadata, MAX_FILTERS)
}

function* checkNamespace(
  namespace: string,
  lifetime: string,
  placeholders: readonly string[],
): Generator<[string, string]> {
  if (!NAMESPACE.test(namespace)) {
    const form = 'segments of A-Z a-z 0-9 _ - between slashes, and may end in /*'
    return yield ['AML-E052', `Namespace ${namespace} must consist of ${form}.`]
  }
  const bare = placeholders.reduce((text, name) => text.replaceAll(name, ''), namespace)
  if (/[{}]/.test(bare)) {
    const names = `${placeholders.slice(0, -1).join(', ')} and ${placeholders.at(-1)}`
    return yield ['AML-E053', `Only ${names} are placeholders of a namespace.`]
  }
  if (AMBIGUOUS.test(namespace)) {
    const rule = 'A slash must separate {actorId} from the next placeholder'
    return yield ['AML-E05B', `${rule}: otherwise two actors can share a namespace.`]
  }
  const [hasActor, hasProject] = ['{actorId}', '{projectId}'].map((it) => namespace.includes(it))
  const ending = `this collection has lifetime ${lifetime}.`
  if (lifetime === 'project') {
    if (hasActor) yield ['AML-W221', `{actorId} belongs to lifetime user, and ${ending}`]
    if (!hasProject) yield ['AML-W228', 'All projects share this namespace: add {projectId}.']
  }
  if (lifetime === 'user') {
    if (hasProject) yield ['AML-W221', `{projectId} belongs to lifetime project, and ${ending}`]
    if (!hasActor) yield ['AML-E231', 'All users share this namespace: add {actorId}.']
  }
}
