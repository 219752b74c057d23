// Fields and checks of a collection that stores sessions in Amazon S3.

import { z } from 'zod'

import { forms, missingAddress, type SecretRef, text, whole } from './fields.ts'
import type { Document, Findings } from './reader.ts'

// The name of a bucket, or the ARN of an access point.
const BUCKET = /^([A-Za-z0-9._-]{1,255}|arn:[A-Za-z0-9:/._-]{1,255})$/

export const S3Config = z.strictObject({
  type: z.literal('s3'),
  bucket_secret: forms.reference.optional(),
  region: forms.region,
  prefix: text(
    '(?=.{1,256}$)[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*',
    'parts of A-Z a-z 0-9 _ . - with single slashes between them',
  ).optional(),
  ttl_days: whole(1, 2_147_483_647).optional(),
})
export type S3Config = z.output<typeof S3Config>

export const backend = { secretRefs, backendFindings }

/** Return the references to resolve before the collection is used. */
export function secretRefs({ bucket_secret: reference }: S3Config): SecretRef[] {
  const path = ['backend', 'bucket_secret']
  const accepts = (name: string) => BUCKET.test(name)
  const expected = 'the name of a bucket'
  return reference ? [{ reference, key: null, region: null, path, expected, accepts }] : []
}

/** Check combinations of fields. */
function* backendFindings(
  document: Document,
  config: S3Config,
  status: string,
  lifetime: string,
): Findings {
  if (!config.bucket_secret) yield* missingAddress(document, 'bucket_secret', status)
  if (lifetime !== 'session') {
    const message = 's3 supports only lifetime session: use custom or agentcore_memory.'
    yield document.finding('AML-E042', message, 'backend', 'type')
  } else if (config.ttl_days === undefined) {
    const message = 'backend.ttl_days is missing: sessions never expire.'
    yield document.finding('AML-W206', message, 'backend', 'ttl_days')
  }
}
