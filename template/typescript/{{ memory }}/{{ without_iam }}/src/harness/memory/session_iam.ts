// The sessions need no IAM statements: they are not on AWS.

import type { Project } from '../collections/check.ts'
import type { Collection } from '../collections/models.ts'
import type { Named } from './statements.ts'

export function sessionStatements(_project: Project, _collection: Collection, _arn: string): Named {
  return []
}

/** Return no statements: the sessions are not on AWS. */
export function erasureStatements(_project: Project, _collection: Collection, _arn: string): Named {
  return []
}
