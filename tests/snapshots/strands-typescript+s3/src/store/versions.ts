// The finding of `check --connect` about a bucket that keeps old versions of sessions.

import type { Collection } from '../collections/models.ts'
import { type Diagnostic, diagnostic } from '../settings.ts'
import { type DurableStore, StoreUnavailable } from './base.ts'
import type { S3Store } from './s3.ts'

const KEPT =
  'The bucket keeps old versions, also of sessions that ended or were forgotten: ' +
  'let a lifecycle rule delete noncurrent versions soon.'

/** Return a warning where the bucket keeps versions; nothing where that cannot be seen. */
export async function checkVersions(
  store: DurableStore,
  { collection_id: id }: Collection,
): Promise<Diagnostic[]> {
  const keeps = await (store as S3Store).keepsVersions().catch((error) => {
    if (!(error instanceof StoreUnavailable)) throw error
    return false
  })
  const file = `collections/${id}.collection.md`
  return keeps ? [diagnostic('AML-W162', KEPT, 'warning', file, 1)] : []
}
