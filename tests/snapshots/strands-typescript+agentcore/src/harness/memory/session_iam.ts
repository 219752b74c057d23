// The sessions need nothing in the IAM policy: AWS does not store them.

import type { Project } from '../collections/check.ts'
import type { Collection } from '../collections/models.ts'
import type { Named } from './statements.ts'

export function sessionStatements(_project: Project, _collection: Collection, _arn: string): Named {
  return []
}

/** What `forget` needs besides: nothing, as AWS does not store the sessions. */
export function erasureStatements(_project: Project, _collection: Collection, _arn: string): Named {
  return []
}
