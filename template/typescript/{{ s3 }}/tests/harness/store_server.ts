// An S3 server for the tests: at TEST_STORE_ADDRESS, with a new bucket.

import { randomUUID } from 'node:crypto'

import { S3 } from '@aws-sdk/client-s3'

const MISSING = 'set TEST_STORE_ADDRESS=http://KEY:SECRET@127.0.0.1:9000 of MinIO or another S3'

export const backend = {
  type: 's3',
  bucket_secret: 'env:TEST_STORE',
  region: 'us-east-1',
  prefix: 'test',
  ttl_days: 1,
}
/** A backend that does not exist. */
export const broken = { ...backend, bucket_secret: 'env:TEST_BROKEN' }

/** Create a bucket; `missing` is an instruction if no server is available, else ''. */
export async function startServer(): Promise<{ missing: string; stop: () => Promise<void> }> {
  const url = URL.parse(process.env.TEST_STORE_ADDRESS ?? '')
  if (!url) return { missing: MISSING, stop: async () => {} }
  const Bucket = `test-${randomUUID()}`
  for (const name in process.env) if (name.startsWith('AWS_')) delete process.env[name]
  process.env.AWS_ENDPOINT_URL_S3 = url.origin
  process.env.AWS_ACCESS_KEY_ID = url.username || 'test'
  process.env.AWS_SECRET_ACCESS_KEY = url.password || 'test'
  process.env.TEST_STORE = Bucket
  process.env.TEST_BROKEN = `${Bucket}-broken`
  const s3 = new S3({ region: 'us-east-1', forcePathStyle: true })
  await s3.createBucket({ Bucket })
  return { missing: '', stop: () => empty(s3, Bucket) }
}

async function empty(s3: S3, Bucket: string): Promise<void> {
  for (;;) {
    const { Contents = [] } = await s3.listObjectsV2({ Bucket })
    if (Contents.length === 0) break
    for (const { Key } of Contents) await s3.deleteObject({ Bucket, Key })
  }
  await s3.deleteBucket({ Bucket })
  s3.destroy()
}
