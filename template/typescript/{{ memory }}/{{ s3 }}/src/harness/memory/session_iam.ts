// What the sessions in S3 need in the IAM policy.

import type { Project } from '../collections/check.ts'
import type { Collection } from '../collections/models.ts'
import type { S3Config } from '../collections/session_backend.ts'
import { allow, type Named, variable } from './statements.ts'

/** What a collection needs, each with its purpose; `arn` is the start of ARNs. */
export function sessionStatements(project: Project, collection: Collection, arn: string): Named {
  const { backend } = collection
  if (backend.type !== 's3') return []
  const { prefix } = backend
  const { bucket, objects } = resources(backend, arn)
  const isWritable = project.isWritable(collection)
  const verbs = isWritable ? ['GetObject', 'PutObject', 'DeleteObject'] : ['GetObject']
  const hasRule = isWritable && prefix // also to remove one
  const rule = hasRule ? ['GetLifecycleConfiguration', 'PutLifecycleConfiguration'] : []
  return [
    ['Objects', allow('s3', verbs, objects)],
    ['Bucket', allow('s3', ['ListBucket', ...rule], bucket)],
  ]
}

/** What `forget` needs for what a bucket with versions keeps of ended sessions. */
export function erasureStatements(project: Project, collection: Collection, arn: string): Named {
  const { backend } = collection
  if (backend.type !== 's3' || !project.isWritable(collection)) return []
  const { bucket, objects } = resources(backend, arn)
  return [
    ['EraseVersions', allow('s3', ['GetObjectVersion', 'DeleteObjectVersion'], objects)],
    ['ListVersions', allow('s3', ['ListBucketVersions'], bucket)],
  ]
}

/** The ARN of the bucket, and that of its objects. */
function resources(backend: S3Config, arn: string) {
  const bucket = `${arn}:s3:::${variable(backend.bucket_secret)}`
  return { bucket, objects: backend.prefix ? `${bucket}/${backend.prefix}/*` : `${bucket}/*` }
}
