// A kind of long-term memory.

import type { Project } from '../collections/check.ts'
import type { Collection } from '../collections/models.ts'
import type { Document } from '../collections/reader.ts'
import type { Secrets } from '../collections/secrets.ts'
import type { Finding } from '../findings.ts'
import type { Clients } from './aws.ts'
import type { Memory, MemoryCollection } from './base.ts'
import type { Named } from './statements.ts'

/** What the agent does with the collections of one type. */
export interface Kind {
  /** Return what the IAM policy allows, by purpose; `arn` is the start of ARNs. */
  statements(project: Project, collection: Collection, arn: string): Named

  /** Return what `forget` needs besides these, by purpose. */
  erasureStatements(collection: Collection, arn: string): Named

  /** Return the memory of a collection, without a call. */
  open(collection: Collection, secrets: Secrets, clients: Clients): Memory

  /** Return where a resource does not match the file. Throws MemoryUnavailable. */
  check(
    collection: MemoryCollection,
    document: Document,
    projectId: string | null,
  ): Promise<Finding[]>
}
