// The interface of a kind of long-term memory.

import type { Project } from '../collections/check.ts'
import type { Collection } from '../collections/models.ts'
import type { Document } from '../collections/reader.ts'
import type { Secrets } from '../collections/secrets.ts'
import type { Finding } from '../findings.ts'
import type { Clients } from './aws.ts'
import type { Memory, MemoryCollection } from './base.ts'
import type { Named } from './statements.ts'

/** A kind of long-term memory; its memories share clients. */
export interface Kind {
  /** Return the IAM statements of a collection, by purpose; `arn` is the prefix of ARNs. */
  statements(project: Project, collection: Collection, arn: string): Named

  /** Return the additional IAM statements of an erasure, by purpose. */
  erasureStatements(collection: Collection, arn: string): Named

  /** Return the memory of a collection, without network calls. */
  open(collection: Collection, secrets: Secrets, clients: Clients): Memory

  /** Return differences between a resource and its file. Throws MemoryUnavailable. */
  check(
    collection: MemoryCollection,
    document: Document,
    projectId: string | null,
  ): Promise<Finding[]>
}
