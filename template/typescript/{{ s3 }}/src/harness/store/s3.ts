// Sessions in Amazon S3: an object per session, replaced by conditional writes.

import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'

import type { _Object, HeadObjectCommandOutput } from '@aws-sdk/client-s3'
import type { GetObjectCommandInput, PutObjectCommandInput, S3 } from '@aws-sdk/client-s3'
import type { GetBucketLifecycleConfigurationOutput, LifecycleRule } from '@aws-sdk/client-s3'
import type { ListObjectVersionsOutput, ObjectVersion } from '@aws-sdk/client-s3'
import { v7 as uuid7 } from 'uuid'

import { forEach, type Stock } from '../collections/erasure.ts'
import type { Collection } from '../collections/models.ts'
import { SecretError, type Secrets } from '../collections/secrets.ts'
import { type S3Config, secretRefs } from '../collections/session_backend.ts'
import { log } from '../log.ts'
import type { Stored } from '../sessions/session_store.ts'
import { Conflict, decode, type DurableStore, type Files, NO_FILES } from './base.ts'
import { readLimit, segmentOf, sessionOf, StoreUnavailable, unavailable } from './base.ts'
import { type StoreWarning, TooLarge, withinSeconds } from './base.ts'
import type { StoreSettings } from './settings.ts'

export const LATEST = 'snapshot_latest.json'
const HISTORY = 'immutable_history/'
const FILES = 'files/'
const QUARANTINE = 'set_aside/'
const FILE_SECONDS = 3600 // a save that still needs an uploaded file is not older
const DAY_SECONDS = 86_400
const OLD_VERSIONS =
  'The bucket keeps old versions, including those of ended and erased sessions: ' +
  'add a lifecycle rule that deletes noncurrent versions.'
const PAUSES = [50, 200] // milliseconds before a retry while another write is in progress

export type Version = ObjectVersion & { isObject: boolean; isLive?: boolean }

/**
 * A DurableStore of the objects `<prefix>/<session_id>/agent/<agent_id>/snapshots/…`.
 *
 * The latest snapshot is `snapshot_latest.json`. Each checkpoint is
 * `immutable_history/snapshot_<uuid7>.json`, each quarantined snapshot
 * `set_aside/snapshot_<uuid7>.json`, each file `files/<name>`. A revision is an ETag. An object
 * older than `ttl_days` counts as absent, even before S3 deletes it.
 */
export class S3Store implements DurableStore {
  readonly contact: string
  readonly #collectionId: string
  readonly #config: S3Config
  readonly root: string
  readonly middle: string
  readonly #settings: StoreSettings
  readonly #maxBytes: number
  readonly #secrets: Secrets
  readonly #background = new Set<Promise<void>>()
  #client: Promise<S3> | null = null
  #hasRule: boolean

  constructor(collection: Collection, agentId: string, settings: StoreSettings, secrets: Secrets) {
    this.#collectionId = collection.collection_id
    this.#config = collection.backend as S3Config
    this.root = this.#config.prefix ? `${this.#config.prefix}/` : ''
    this.middle = `/agent/${agentId}/snapshots/`
    this.#settings = settings
    this.#maxBytes = readLimit(settings.maxSnapshotBytes)
    this.#secrets = secrets
    // Without a prefix, a lifecycle rule would delete unrelated objects of the bucket.
    this.#hasRule = !this.root
    const { bucket_secret: reference, region } = this.#config
    this.contact = `the bucket of secret '${reference}' in ${region}`
  }

  async load(sessionId: string, known: Stored | null = null): Promise<Stored | null> {
    const key = this.#folder(sessionId) + LATEST
    return await this.run((bucket) => bucket.get(key, known, this.#maxBytes))
  }

  async save(
    sessionId: string,
    snapshot: string,
    expected: string | null,
    checkpoint: string | null = null,
    files: Files = NO_FILES,
  ): Promise<string | null> {
    const folder = this.#folder(sessionId)
    for (const [name, content] of files) {
      await this.run((bucket) => bucket.putFile(folder + FILES + name, content))
    }
    const revision = await this.run(async (bucket) => {
      if (expected) return await bucket.put(folder + LATEST, snapshot, { IfMatch: expected })
      return await bucket.create(folder + LATEST, snapshot)
    })
    if (checkpoint) await this.saveCheckpoint(sessionId, snapshot, checkpoint)
    this.#setRule()
    return revision
  }

  async saveCheckpoint(sessionId: string, snapshot: string, checkpoint: string): Promise<void> {
    const key = this.#checkpoint(sessionId, checkpoint)
    try {
      await this.run((bucket) => bucket.put(key, snapshot))
      const deleted = this.#deleteCheckpoints(this.#folder(sessionId) + HISTORY)
      this.#inBackground('deletion of old checkpoints', deleted)
    } catch (error) {
      log(
        'WARNING',
        `session ${sessionId}: the checkpoint was not saved: ${(error as Error).message}`,
      )
    }
  }

  async loadCheckpoint(sessionId: string, checkpoint: string): Promise<string | null> {
    const key = this.#checkpoint(sessionId, checkpoint)
    return (await this.run((bucket) => bucket.get(key, null, this.#maxBytes)))?.snapshot ?? null
  }

  async checkpoints(sessionId: string): Promise<string[]> {
    const start = `${this.#folder(sessionId)}${HISTORY}snapshot_`
    const keys = await this.#keys(start)
    const ids = keys.map((key) => key.slice(start.length, -'.json'.length))
    return ids.slice(-this.#settings.checkpoints) // a background task deletes older checkpoints
  }

  async loadFiles(sessionId: string, names: readonly string[]): Promise<Files> {
    const folder = this.#folder(sessionId) + FILES
    const files = new Map<string, Uint8Array>()
    const load = async (name: string) => {
      const content = await this.run((bucket) => bucket.getFile(folder + name, this.#maxBytes))
      if (content) files.set(name, content)
    }
    await Promise.all(names.map(load))
    return files
  }

  async trimFiles(sessionId: string): Promise<void> {
    const folder = this.#folder(sessionId)
    const trim = async (bucket: Objects) => {
      const old = await bucket.oldKeys(folder + FILES, FILE_SECONDS)
      if (old.length === 0) return
      const keys = await bucket.keys(folder)
      const texts: Buffer[] = []
      for (const key of keys.filter((key) => !key.startsWith(folder + FILES))) {
        const text = await bucket.getFile(key, this.#maxBytes)
        if (text) texts.push(Buffer.from(text))
      }
      // The store returns a snapshot that is too large empty: keep all files.
      const isUnused = (name: string) =>
        texts.every((text) => text.length > 0 && !text.includes(name))
      await bucket.delete(old.filter((key) => isUnused(key.slice(folder.length + FILES.length))))
    }
    await this.run(trim).catch((error) => {
      if (!(error instanceof StoreUnavailable)) throw error
      log('WARNING', `session ${sessionId}: old files were not deleted: ${error.message}`)
    })
  }

  async quarantine(sessionId: string, revision: string | null): Promise<string> {
    const folder = this.#folder(sessionId)
    const name = `${folder}${QUARANTINE}snapshot_${uuid7()}.json`
    await this.run((bucket) => bucket.move(folder + LATEST, name, revision ?? ''))
    return name
  }

  async quarantined(sessionId: string): Promise<string[]> {
    return await this.#keys(this.#folder(sessionId) + QUARANTINE)
  }

  async end(sessionId: string): Promise<void> {
    const folder = this.#folder(sessionId)
    const deleteRest = (bucket: Objects) => bucket.deleteAll(folder, folder + LATEST)
    await this.run(deleteRest)
    // After the rest, so that a retry of a failed end finds the session.
    await this.run((bucket) => bucket.delete([folder + LATEST]))
    // Again, for the data of running turns; keep a snapshot that another replica saved since.
    await this.run(deleteRest)
  }

  async sessions(): Promise<string[]> {
    const keys = await this.#keys(this.root)
    const ids = keys.map((key) => this.sessionIn(key)).filter((id) => id !== null)
    return [...new Set(ids)].sort()
  }

  /** Return the session of an object, or null if the key belongs to no session. */
  sessionIn(key: string): string | null {
    const [segment = '', rest] = key.slice(this.root.length).split(this.middle)
    return rest === undefined ? null : sessionOf(segment)
  }

  /** Return all versions of all objects, such as those of ended or expired sessions. */
  leftovers(): Stock[] {
    const versions = () => this.versions()
    const deleteVersion = async (name: string) => {
      const [id = '', ...key] = name.split(' ')
      await this.run((bucket) => bucket.deleteVersion(key.join(' '), id))
    }
    return [
      {
        what: 'objects of sessions and old versions of them',
        where: this.contact,
        async *pages() {
          for await (const page of versions()) {
            yield page.map(({ Key, VersionId }) => `${VersionId} ${Key}`)
          }
        },
        delete: (names) => forEach(names, deleteVersion),
        failures: [StoreUnavailable],
      },
    ]
  }

  /** Yield the versions of the sessions' objects by key; within a key, newest first. */
  async *versions(): AsyncGenerator<Version[]> {
    let page: ListObjectVersionsOutput = {}
    do {
      const { NextKeyMarker: KeyMarker, NextVersionIdMarker: VersionIdMarker } = page
      const request = { Prefix: this.root, KeyMarker, VersionIdMarker }
      // Each page has its own time limit.
      let versions: Version[] = []
      page = await this.run(async (bucket) => {
        const reply = await bucket.s3.listObjectVersions(
          { Bucket: bucket.Bucket, ...request },
          bucket.stop,
        )
        versions = versionsOf(reply, bucket)
        return reply
      })
      yield versions.filter(({ Key = '' }) => this.sessionIn(Key) !== null)
    } while (page.IsTruncated)
  }

  async warnings(): Promise<StoreWarning[]> {
    this.#hasRule = true // the test session of a check sets no rule
    const keepsVersions = await this.#keepsVersions().catch((error) => {
      if (!(error instanceof StoreUnavailable)) throw error
      return false // no permission to read the setting
    })
    return keepsVersions ? [['AML-W162', OLD_VERSIONS]] : []
  }

  async close(): Promise<void> {
    await Promise.all(this.#background)
    const client = await this.#client
    client?.destroy()
    this.#client = null
  }

  /** Return whether the bucket keeps versions of replaced and deleted objects. */
  async #keepsVersions(): Promise<boolean> {
    return await this.run(async ({ s3, Bucket, stop }) => {
      const { Status } = await s3.getBucketVersioning({ Bucket }, stop)
      return Status !== undefined // undefined: versioning was never enabled
    })
  }

  #folder(sessionId: string): string {
    return this.root + segmentOf(sessionId) + this.middle
  }

  #checkpoint(sessionId: string, checkpoint: string): string {
    return `${this.#folder(sessionId)}${HISTORY}snapshot_${checkpoint}.json`
  }

  /** Return the result of `use` within the time limit. Throws StoreUnavailable. */
  async run<T>(use: (bucket: Objects) => Promise<T>): Promise<T> {
    const { bucket_secret: reference = '', region, ttl_days: days = null } = this.#config
    let name = `bucket of secret '${reference}'`
    const client = await (this.#client ??= connect(region))
    try {
      return await withinSeconds(this.#settings.storeTimeoutSeconds, async (abortSignal) => {
        const Bucket = await this.#secrets.get(secretRefs(this.#config)[0]!)
        name = `bucket '${Bucket}' in ${region}`
        return await use(new Objects(client, Bucket, { abortSignal }, days))
      })
    } catch (error) {
      if (error instanceof Conflict) throw error
      const { message } = unavailable(name, error)
      throw new StoreUnavailable(message, { indeterminate: !isCertain(error) })
    }
  }

  /** Return the keys with `prefix`; each page has its own time limit. */
  async #keys(prefix: string): Promise<string[]> {
    const all: string[] = []
    let token: string | undefined
    do {
      const [keys, next] = await this.run((bucket) => bucket.page(prefix, token))
      all.push(...keys)
      token = next
    } while (token)
    return all
  }

  /** Set the lifecycle rule once, in the background. */
  #setRule(): void {
    if (this.#hasRule) return
    this.#hasRule = true
    const rule = [this.#collectionId, this.root, this.#config.ttl_days ?? null] as const
    const work = this.run((bucket) => ensureRule(bucket, ...rule))
    this.#inBackground('lifecycle rule', work)
  }

  async #deleteCheckpoints(prefix: string): Promise<void> {
    const keys = (await this.#keys(prefix)).slice(0, -this.#settings.checkpoints)
    await this.run((bucket) => bucket.delete(keys))
  }

  #inBackground(name: string, work: Promise<void>): void {
    const logged = work.catch((error: Error) => {
      log('WARNING', `s3: ${name} failed: ${error.message}`)
    })
    this.#background.add(logged)
    void logged.then(() => this.#background.delete(logged))
  }
}

/** Import and create the client, lazily for a fast start and outside the time limit. */
async function connect(region: string): Promise<S3> {
  const { S3 } = await import('@aws-sdk/client-s3')
  return new S3({
    region,
    maxAttempts: 2,
    // Servers other than AWS may lack a host name per bucket and newer checksums.
    forcePathStyle: Boolean(process.env.AWS_ENDPOINT_URL_S3 || process.env.AWS_ENDPOINT_URL),
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
  })
}

/** The network cut or changed the response body. */
class DamagedBody extends Error {}

/** The objects of a bucket during a call; methods throw the client's errors. */
export class Objects {
  readonly s3: S3
  readonly Bucket: string
  readonly stop: { abortSignal: AbortSignal }
  readonly #days: number | null

  constructor(s3: S3, Bucket: string, stop: { abortSignal: AbortSignal }, days: number | null) {
    this.s3 = s3
    this.Bucket = Bucket
    this.stop = stop
    this.#days = days
  }

  /** Return the object, or null; `known` if unchanged; TooLarge above `maxBytes`. */
  async get(Key: string, known: Stored | null, maxBytes: number): Promise<Stored | null> {
    const condition = known?.revision ? { IfNoneMatch: known.revision } : {}
    try {
      const read = await this.#read(Key, maxBytes, condition)
      if (!read || this.isExpired(read.LastModified)) return null
      const { ETag: revision = null, isTooLarge, bytes } = read
      return isTooLarge ? new TooLarge(revision) : { revision, snapshot: decode(bytes) }
    } catch (error) {
      if (statusOf(error) !== 304) throw error
      if (this.#days === null) return known
      // The client omits the headers of a 304 response.
      const head = await this.#head(Key)
      return head && !this.isExpired(head.LastModified) ? known : null
    }
  }

  /** Return the content of an object, even of an expired object; empty if above `maxBytes`. */
  async getFile(Key: string, maxBytes: number): Promise<Uint8Array | null> {
    return (await this.#read(Key, maxBytes))?.bytes ?? null
  }

  /** Return an object, or null; read a damaged body a second time. */
  async #read(Key: string, maxBytes: number, condition: Partial<GetObjectCommandInput> = {}) {
    const read = () => this.#readOnce(Key, maxBytes, condition)
    try {
      return await read().catch((error) => {
        if (error instanceof DamagedBody) return read()
        throw error
      })
    } catch (error) {
      if ((error as Error).name === 'NoSuchKey') return null
      throw error
    }
  }

  async #readOnce(Key: string, maxBytes: number, condition: Partial<GetObjectCommandInput>) {
    const { s3, Bucket, stop } = this
    const request = { Bucket, Key, ChecksumMode: 'ENABLED', ...condition } as const
    const { Body, ContentLength = Infinity, ETag, LastModified } = await s3.getObject(request, stop)
    const isTooLarge = ContentLength > maxBytes
    const read = isTooLarge ? null : Body?.transformToByteArray()
    const bytes = await read?.catch((error: unknown) => {
      throw new DamagedBody('', { cause: error })
    })
    if (Body instanceof Readable) Body.destroy() // closes an unread body
    return { ETag, LastModified, isTooLarge, bytes: bytes ?? new Uint8Array() }
  }

  /** Write a file. */
  async putFile(Key: string, Body: Uint8Array): Promise<void> {
    await this.s3.putObject({ Bucket: this.Bucket, Key, Body }, this.stop)
  }

  /** Write the object and return its revision. Throws Conflict. */
  async put(Key: string, Body: string, condition: Partial<PutObjectCommandInput> = {}) {
    const { Bucket } = this
    const object = { Bucket, Key, Body, ContentType: 'application/json', ...condition }
    for (const pause of PAUSES) {
      try {
        return (await this.s3.putObject(object, this.stop)).ETag ?? null
      } catch (error) {
        if ((error as Error).name !== 'ConditionalRequestConflict') refuse(error)
        await sleep(pause)
      }
    }
    const { ETag } = await this.s3.putObject(object, this.stop).catch(refuse)
    return ETag ?? null
  }

  /** Write an object that is absent or expired, and return its revision. Throws Conflict. */
  async create(Key: string, Body: string): Promise<string | null> {
    try {
      return await this.put(Key, Body, { IfNoneMatch: '*' })
    } catch (error) {
      if (!(error instanceof Conflict)) throw error
      const head = await this.#head(Key)
      if (!head || !this.isExpired(head.LastModified)) throw error
      return await this.put(Key, Body, { IfMatch: head.ETag })
    }
  }

  /** Move the object; a partial failure leaves both objects. Throws Conflict. */
  async move(from: string, Key: string, revision: string): Promise<void> {
    const { s3, Bucket, stop } = this
    const CopySource = encodeURIComponent(`${Bucket}/${from}`)
    const copy = { Bucket, Key, CopySource, CopySourceIfMatch: revision }
    await s3.copyObject(copy, stop).catch(refuse)
    await s3.deleteObject({ Bucket, Key: from, IfMatch: revision }, stop).catch((error) => {
      if (statusOf(error) !== 404) refuse(error) // 404: the response of an earlier delete was lost
    })
  }

  /** Return a page of keys with `Prefix` that have not expired, and the next token. */
  async page(Prefix: string, ContinuationToken?: string): Promise<[string[], string | undefined]> {
    const { s3, Bucket, stop } = this
    const page = await s3.listObjectsV2({ Bucket, Prefix, ContinuationToken }, stop)
    const live = page.Contents?.filter(({ LastModified }) => !this.isExpired(LastModified)) ?? []
    return [live.map(({ Key = '' }) => Key), page.NextContinuationToken]
  }

  /** Return the keys with `prefix` that have not expired. */
  async keys(prefix: string): Promise<string[]> {
    const all: string[] = []
    let token: string | undefined
    do {
      const [keys, next] = await this.page(prefix, token)
      all.push(...keys)
      token = next
    } while (token)
    return all
  }

  /** Return the keys with `Prefix` whose objects are older than `seconds`, or have expired. */
  async oldKeys(Prefix: string, seconds: number): Promise<string[]> {
    const { s3, Bucket, stop } = this
    const old: _Object[] = []
    let ContinuationToken: string | undefined
    do {
      const page = await s3.listObjectsV2({ Bucket, Prefix, ContinuationToken }, stop)
      const objects = page.Contents ?? []
      old.push(...objects.filter(({ LastModified }) => this.#age(LastModified) > seconds))
      ContinuationToken = page.NextContinuationToken
    } while (ContinuationToken)
    return old.map(({ Key = '' }) => Key)
  }

  /** Delete a version of an object. Idempotent. */
  async deleteVersion(Key: string, VersionId: string | undefined): Promise<void> {
    await this.s3.deleteObject({ Bucket: this.Bucket, Key, VersionId }, this.stop)
  }

  /** Delete objects. Idempotent. */
  async delete(keys: string[]): Promise<void> {
    for (const Key of keys) await this.s3.deleteObject({ Bucket: this.Bucket, Key }, this.stop)
  }

  /** Delete all objects with `Prefix`, including expired objects, except `except`. */
  async deleteAll(Prefix: string, except: string): Promise<void> {
    const { s3, Bucket, stop } = this
    let ContinuationToken: string | undefined
    do {
      const page = await s3.listObjectsV2({ Bucket, Prefix, ContinuationToken }, stop)
      const isOther = ({ Key }: _Object) => Key !== except
      const Objects = page.Contents?.filter(isOther).map(({ Key }) => ({ Key })) ?? []
      if (Objects.length > 0) {
        const Delete = { Objects, Quiet: true }
        const { Errors = [] } = await s3.deleteObjects({ Bucket, Delete }, stop)
        if (Errors[0]) throw new StoreUnavailable(`an object was not deleted: ${Errors[0].Code}`)
      }
      ContinuationToken = page.NextContinuationToken
    } while (ContinuationToken)
  }

  /** Return the metadata of an object, or null if it does not exist. */
  async #head(Key: string): Promise<HeadObjectCommandOutput | null> {
    try {
      return await this.s3.headObject({ Bucket: this.Bucket, Key }, this.stop)
    } catch (error) {
      if (statusOf(error) === 404) return null
      throw error
    }
  }

  /** Return whether an object has expired, by the clock of S3. */
  isExpired(changed: Date | undefined): boolean {
    return this.#days !== null && this.#age(changed) > this.#days * DAY_SECONDS
  }

  /** Return the seconds since a change, by the clock of S3; 0 if the time is unknown. */
  #age(changed: Date | undefined): number {
    if (!changed) return 0
    return (Date.now() + this.s3.config.systemClockOffset - changed.getTime()) / 1000
  }
}

/** Set the lifecycle rule that expires objects after `days`; remove it for null. */
async function ensureRule(
  { s3, Bucket, stop }: Objects,
  collectionId: string,
  prefix: string,
  days: number | null,
): Promise<void> {
  // The id contains the prefix: projects may share a bucket. Earlier releases omitted it.
  const names = [`aml-${prefix}${collectionId}`.slice(0, 255), `aml-${collectionId}`] as const
  const rule = {
    ID: names[0],
    Filter: { Prefix: prefix },
    Status: 'Enabled' as const,
    Expiration: { Days: days ?? 0 },
    NoncurrentVersionExpiration: { NoncurrentDays: days ?? 0 },
  }
  const request = s3.getBucketLifecycleConfiguration({ Bucket }, stop)
  const current: Partial<GetBucketLifecycleConfigurationOutput> = await request.catch((error) => {
    if (error.name === 'NoSuchLifecycleConfiguration') return {}
    throw error
  })
  const { Rules = [], TransitionDefaultMinimumObjectSize } = current
  if (Rules.some((other) => isDeepStrictEqual(other, rule))) return
  const isOwn = ({ ID = '', Filter }: LifecycleRule) =>
    names.includes(ID) && Filter?.Prefix === prefix
  const wanted = [...Rules.filter((other) => !isOwn(other)), ...(days === null ? [] : [rule])]
  if (isDeepStrictEqual(wanted, Rules)) return
  const configuration = { Bucket, LifecycleConfiguration: { Rules: wanted } }
  const setting = { TransitionDefaultMinimumObjectSize } // S3 would reset it
  if (wanted.length > 0)
    await s3.putBucketLifecycleConfiguration({ ...configuration, ...setting }, stop)
  else await s3.deleteBucketLifecycle({ Bucket }, stop)
  log('INFO', `s3: lifecycle rule ${rule.ID}: ${days === null ? 'removed' : `${days} days`}`)
}

/** Return the versions of a page by key; within a key, newest first. */
function versionsOf(page: ListObjectVersionsOutput, bucket: Objects): Version[] {
  const { Versions = [], DeleteMarkers = [] } = page
  const isLive = ({ IsLatest = false, LastModified }: ObjectVersion) =>
    IsLatest && !bucket.isExpired(LastModified)
  const all = [
    ...Versions.map((version) => ({ ...version, isObject: true, isLive: isLive(version) })),
    ...DeleteMarkers.map((marker) => ({ ...marker, isObject: false })),
  ]
  const timeOf = ({ LastModified }: Version) => LastModified?.getTime() ?? 0
  return all
    .toSorted((a, b) => timeOf(b) - timeOf(a))
    .toSorted((a, b) => (a.Key! < b.Key! ? -1 : Number(a.Key! > b.Key!)))
}

/** Whether a failed call changed nothing: not if an earlier attempt of the client may be saved. */
function isCertain(error: unknown): boolean {
  const { $metadata } = error as { $metadata?: { attempts?: number } }
  const status = statusOf(error)
  const isRefused = status >= 400 && status < 500 && $metadata?.attempts === 1
  return isRefused || error instanceof SecretError
}

function statusOf(error: unknown): number {
  const { $metadata } = error as { $metadata?: { httpStatusCode?: number } }
  return $metadata?.httpStatusCode ?? 0
}

/** Throw Conflict if a condition of the request failed, else the error. */
function refuse(error: unknown): never {
  const isLost = [409, 412].includes(statusOf(error)) || (error as Error).name === 'NoSuchKey'
  throw isLost ? new Conflict() : error
}
