// Erase the old versions of an actor's sessions from a versioned bucket.

import { Capability } from '../capability.ts'
import type { Modules } from '../modules.ts'
import type { CoreSettings } from '../settings.ts'
import { type DurableStore, StoreUnavailable } from '../store/base.ts'
import { LATEST, type S3Store, type Version } from '../store/s3.ts'
import type { Report } from './erasure_report.ts'
import { SessionErasure } from './session_erasure.ts'

type Session = { id: string; versions: Version[] }

/** Lets `forget` also delete old versions of an actor's ended or expired sessions. */
export class SessionVersions extends Capability {
  constructor(settings: CoreSettings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    const sessions = before.find((capability) => capability instanceof SessionErasure)!
    sessions.purge = (store, report) => purge(store, report)
  }
}

/** Delete the versions of the actor's ended or expired sessions. */
async function purge(durable: DurableStore, report: Report): Promise<void> {
  const store = durable as S3Store
  let count = 0
  try {
    for await (const { versions } of sessionsIn(store)) {
      const latest = versions.filter(({ Key = '' }) => Key.endsWith(`/${LATEST}`))
      const newest = latest.find(({ isObject }) => isObject)
      if (latest.some(({ isLive }) => isLive) || !newest) continue
      if ((await actorOf(store, newest)) !== report.actor) continue
      for (const { Key, VersionId } of versions) {
        await store.run((bucket) => bucket.deleteVersion(Key!, VersionId))
      }
      count++
    }
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error
    report.notes.push(`old versions of sessions may remain in the bucket: ${error.message}`)
  }
  if (count > 0) {
    report.notes.push(`old versions of ${count} ended or expired sessions were deleted`)
  }
}

/** Yield the versions of all objects of each session, newest first. */
async function* sessionsIn(store: S3Store): AsyncGenerator<Session> {
  let last: Session = { id: '', versions: [] }
  for await (const versions of store.versions()) {
    for (const version of versions) {
      const id = store.sessionIn(version.Key!)!
      if (id !== last.id) {
        if (last.id) yield last
        last = { id, versions: [] }
      }
      last.versions.push(version)
    }
  }
  if (last.id) yield last
}

/** Return the actor of a version's session, or null if the session has no actor. */
async function actorOf(store: S3Store, { Key, VersionId }: Version): Promise<unknown> {
  const body = await store.run(async ({ s3, Bucket, stop }) => {
    const { Body } = await s3.getObject({ Bucket, Key, VersionId }, stop)
    return await Body?.transformToString()
  })
  try {
    return JSON.parse(body ?? '').app_data.actor ?? null
  } catch {
    return null
  }
}
