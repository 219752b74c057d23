// The lifecycle rule of a collection: merged into those of the bucket, once per process.

import { isDeepStrictEqual } from 'node:util'

import type { GetBucketLifecycleConfigurationCommandOutput } from '@aws-sdk/client-s3'

import { log } from '../contract.ts'
import { type Bucket, codeOf } from './s3_client.ts'

/** Have S3 delete what is older; the rules of others stay as they are. */
export async function ensureRule(
  { s3, Bucket, stop }: Bucket,
  collectionId: string,
  prefix: string,
  days: number,
): Promise<void> {
  const rule = {
    ID: `aml-${collectionId}`,
    Status: 'Enabled' as const,
    Filter: { Prefix: prefix },
    Expiration: { Days: days },
    NoncurrentVersionExpiration: { NoncurrentDays: days },
  }
  let found: Partial<GetBucketLifecycleConfigurationCommandOutput> = {}
  try {
    found = await s3.getBucketLifecycleConfiguration({ Bucket }, stop)
  } catch (error) {
    if (codeOf(error) !== 'NoSuchLifecycleConfiguration') throw error
  }
  const { Rules = [], TransitionDefaultMinimumObjectSize } = found
  if (Rules.some((other) => isDeepStrictEqual(other, rule))) return
  const LifecycleConfiguration = { Rules: [...Rules.filter(({ ID }) => ID !== rule.ID), rule] }
  // The size is a setting beside the rules, kept as it is.
  const all = { Bucket, LifecycleConfiguration, TransitionDefaultMinimumObjectSize }
  await s3.putBucketLifecycleConfiguration(all, stop)
  log('INFO', `s3: lifecycle rule ${rule.ID}: what is older than ${days} days goes`)
}
