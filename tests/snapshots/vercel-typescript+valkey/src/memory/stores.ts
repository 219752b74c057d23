// Which collections keep the sessions, and the store of each type of backend.

import type { Backend } from './backends.ts'
import { CustomStore } from './custom_store.ts'
import type { Collection } from './models.ts'
import type { Options } from './options.ts'
import type { Project } from './project.ts'
import { S3Store } from './s3_store.ts'
import type { Secrets } from './secrets.ts'
import { ValkeyStore } from './valkey_store.ts'

/** The store of a collection; each imports its client when it is used, and no sooner. */
export function buildBackend(
  ...given: [collection: Collection, agentId: string, options: Options, secrets: Secrets]
): Backend {
  const { type } = given[0].backend
  const Store = type === 'valkey' ? ValkeyStore : type === 's3' ? S3Store : CustomStore
  return new Store(...given)
}

/** The collection that keeps the sessions, and those that get copies of them. */
export function keepers({ collections, reads, writes }: Project): Collection[] {
  const named = [...new Set([...reads, ...writes])].flatMap((id) => collections.get(id) ?? [])
  const sessions = named.filter(({ scope }) => scope.lifetime === 'session')
  return [...sessions, ...named.filter(({ backend }) => backend.type === 'custom')]
}

/** Whether the agent may write to the collection. */
export function isWritable(
  { writes }: Project,
  { writeback, collection_id: id }: Collection,
): boolean {
  return writeback.enabled && writes.includes(id)
}
