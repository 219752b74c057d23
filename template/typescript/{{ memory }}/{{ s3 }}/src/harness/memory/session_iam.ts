// The IAM statements for sessions in S3.

import type { Project } from '../collections/check.ts'
import type { Collection } from '../collections/models.ts'
import type { S3Config } from '../collections/session_backend.ts'
import { allow, type Named, variable } from './statements.ts'

/** Return the IAM statements of a collection, by purpose; `arn` is the prefix of ARNs. */
export function sessionStatements(project: Project, collection: Collection, arn: string): Named {
  const { backend } = collection
  if (backend.type !== 's3') return []
  const { prefix } = backend
  const { bucket, objects } = resources(backend, arn)
  const isWritable = project.isWritable(collection)
  const verbs = isWritable ? ['GetObject', 'PutObject', 'DeleteObject'] : ['GetObject']
  const hasRule = isWritable && prefix // to set or remove the lifecycle rule
  const rule = hasRule ? ['GetLifecycleConfiguration', 'PutLifecycleConfiguration'] : []
  return [
    ['Objects', allow('s3', verbs, objects)],
    ['Bucket', allow('s3', ['ListBucket', ...rule], bucket)],
  ]
}

/** Return the statements to erase old versions of sessions from a versioned bucket. */
export function erasureStatements(project: Project, collection: Collection, arn: string): Named {
  const { backend } = collection
  if (backend.type !== 's3' || !project.isWritable(collection)) return []
  const { bucket, objects } = resources(backend, arn)
  return [
    ['EraseVersions', allow('s3', ['GetObjectVersion', 'DeleteObjectVersion'], objects)],
    ['ListVersions', allow('s3', ['ListBucketVersions'], bucket)],
  ]
}

/** Return the ARNs of the bucket and of its objects. */
function resources(backend: S3Config, arn: string) {
  const bucket = `${arn}:s3:::${variable(backend.bucket_secret)}`
  return { bucket, objects: backend.prefix ? `${bucket}/${backend.prefix}/*` : `${bucket}/*` }
}
