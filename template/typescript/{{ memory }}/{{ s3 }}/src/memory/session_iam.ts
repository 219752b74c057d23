// What the sessions in S3 need in the IAM policy.

import type { Project } from '../collections/check.ts'
import type { Collection } from '../collections/models.ts'
import { allow, type Named, variable } from './statements.ts'

/** What a collection needs, each with its purpose; `arn` is the start of ARNs. */
export function sessionStatements(project: Project, collection: Collection, arn: string): Named {
  const { backend } = collection
  if (backend.type !== 's3') return []
  const { bucket_secret: secret, prefix } = backend
  const [bucket, isWritable] = [`${arn}:s3:::${variable(secret)}`, project.isWritable(collection)]
  const verbs = isWritable ? ['GetObject', 'PutObject', 'DeleteObject'] : ['GetObject']
  const hasRule = isWritable && prefix // also to remove one
  const rule = hasRule ? ['GetLifecycleConfiguration', 'PutLifecycleConfiguration'] : []
  return [
    ['Objects', allow('s3', verbs, prefix ? `${bucket}/${prefix}/*` : `${bucket}/*`)],
    ['Bucket', allow('s3', ['ListBucket', ...rule], bucket)],
  ]
}
