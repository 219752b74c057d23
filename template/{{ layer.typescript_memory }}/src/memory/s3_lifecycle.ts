// The lifecycle rule of a collection: merged into those of the bucket, once per process.

import { isDeepStrictEqual } from 'node:util'

import type {
  GetBucketLifecycleConfigurationCommandOutput,
  LifecycleRule,
} from '@aws-sdk/client-s3'

import { log } from '../contract.ts'
import { type Bucket, codeOf } from './s3_client.ts'

/** Have S3 delete what is older, or with null no more; the rules of others stay as they are. */
export async function ensureRule(
  { s3, Bucket, stop }: Bucket,
  collectionId: string,
  prefix: string,
  days: number | null,
): Promise<void> {
  const own = { ID: `aml-${collectionId}`, Filter: { Prefix: prefix } }
  const limits = {
    Expiration: { Days: days ?? 0 },
    NoncurrentVersionExpiration: { NoncurrentDays: days ?? 0 },
  }
  const rule = { ...own, Status: 'Enabled' as const, ...limits }
  let found: Partial<GetBucketLifecycleConfigurationCommandOutput> = {}
  try {
    found = await s3.getBucketLifecycleConfiguration({ Bucket }, stop)
  } catch (error) {
    if (codeOf(error) !== 'NoSuchLifecycleConfiguration') throw error
  }
  const { Rules = [], TransitionDefaultMinimumObjectSize } = found
  if (Rules.some((other) => isDeepStrictEqual(other, rule))) return
  // With another prefix it is of another project, whose collection has the same id.
  const isOwn = ({ ID, Filter }: LifecycleRule) =>
    ID === own.ID && (days !== null || Filter?.Prefix === prefix)
  const wanted = [...Rules.filter((other) => !isOwn(other)), ...(days === null ? [] : [rule])]
  if (isDeepStrictEqual(wanted, Rules)) return
  const LifecycleConfiguration = { Rules: wanted }
  // The size is a setting beside the rules, kept as it is.
  const all = { Bucket, LifecycleConfiguration, TransitionDefaultMinimumObjectSize }
  if (wanted.length > 0) await s3.putBucketLifecycleConfiguration(all, stop)
  else await s3.deleteBucketLifecycle({ Bucket }, stop)
  const what = days === null ? 'removed' : `what is older than ${days} days goes`
  log('INFO', `s3: lifecycle rule ${rule.ID}: ${what}`)
}
