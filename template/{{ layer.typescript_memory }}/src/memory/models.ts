// What a collection, an agent and its grants are: each field, its default and what it allows.
//
// What concerns more than one field stands in `lint` and `references`.

import { z } from 'zod'

import { lambda, restApi } from './access.ts'
import { agentId, collectionId, day, life, matches } from './values.ts'
import { prose, reference, region, version, whole } from './values.ts'

const meta = z.strictObject({
  name: prose,
  description: prose,
  owner: prose,
  tags: z.array(prose).default([]),
  last_updated: day.optional(),
})

const scope = z.strictObject({ lifetime: z.enum(['session', 'project', 'user']) })

const namespace = z.strictObject({
  top_k: whole(1, 1000).default(10),
  relevance_score: z.number().min(0).max(1).default(0.2),
})

/** The keys and values of a mapping; a record of zod would pass over the key __proto__. */
function entriesOf(value: unknown): unknown {
  const isMapping = typeof value === 'object' && value !== null && !Array.isArray(value)
  return isMapping ? new Map(Object.entries(value)) : value
}

const agentCoreMemory = z.strictObject({
  type: z.literal('agentcore_memory'),
  memory_id_secret: reference.optional(),
  region,
  retrieval_config: z
    .preprocess(entriesOf, z.map(z.string(), namespace))
    .refine((config) => config.size > 0)
    .transform((config) => Object.fromEntries(config))
    .optional(),
  batch_size: whole(1, 100).default(1),
})

const valkey = z.strictObject({
  type: z.literal('valkey'),
  endpoint_secret: reference.optional(),
  port: whole(1, 65_535).default(6379),
  key_prefix: matches('[A-Za-z0-9_.:/-]{1,128}').default('session'),
  ttl_seconds: life.optional(),
})

const s3 = z.strictObject({
  type: z.literal('s3'),
  bucket_secret: reference.optional(),
  region,
  prefix: matches('(?=.{1,256}$)[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*').optional(),
  ttl_days: life.optional(),
})

const custom = z.strictObject({
  type: z.literal('custom'),
  transport: z.discriminatedUnion('type', [restApi, lambda]).optional(),
})

export const collection = z.strictObject({
  spec_version: z.literal('1.2'),
  collection_id: collectionId,
  version,
  status: z.enum(['draft', 'active', 'deprecated', 'disabled']),
  meta,
  scope,
  backend: z.discriminatedUnion('type', [agentCoreMemory, valkey, s3, custom]),
  writeback: z.strictObject({ enabled: z.boolean() }),
})

export const agent = z.object({
  agent_id: agentId,
  memory: z.object({
    mode: z.enum(['none', 'session', 'project', 'user']),
    read_collections: z.array(z.string()).default([]),
    write_collections: z.array(z.string()).default([]),
  }),
})

const grant = z.object({
  ref: collectionId,
  access: z.enum(['read', 'write', 'read-write', 'deny']),
})

export const iam = z.object({
  agent_id: agentId,
  collections: z.array(grant).default([]),
})

export type Collection = z.output<typeof collection>
