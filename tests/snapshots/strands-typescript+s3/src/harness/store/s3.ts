// Sessions in Amazon S3: one object each, replaced on the condition that nobody else did.

import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'

import type { _Object, HeadObjectCommandOutput } from '@aws-sdk/client-s3'
import type { PutObjectCommandInput, S3 } from '@aws-sdk/client-s3'
import type { GetBucketLifecycleConfigurationOutput, LifecycleRule } from '@aws-sdk/client-s3'
import { v7 as uuid7 } from 'uuid'

import type { Collection } from '../collections/models.ts'
import type { Secrets } from '../collections/secrets.ts'
import { type S3Config, secretRefs } from '../collections/session_backend.ts'
import { SESSION_ID } from '../contract.ts'
import { log } from '../log.ts'
import type { Stored } from '../sessions/session_store.ts'
import { Conflict, decode, type DurableStore, StoreUnavailable } from './base.ts'
import { readLimit, unavailable, type Warning, withinSeconds } from './base.ts'
import type { StoreSettings } from './settings.ts'

export const LATEST = 'snapshot_latest.json'
const [HISTORY, QUARANTINE] = ['immutable_history/', 'set_aside/']
const DAY = 86_400_000
const KEPT =
  'The bucket keeps old versions, also of sessions that ended or were forgotten: ' +
  'let a lifecycle rule delete noncurrent versions soon.'
const PAUSES = [50, 200] // milliseconds, while S3 decides on another write of the object

/**
 * The objects `<prefix>/<session_id>/agent/<agent_id>/snapshots/…`; a revision is an ETag.
 *
 * What is older than `ttl_days` counts as absent, whether or not S3 has deleted it yet.
 */
export class S3Store implements DurableStore {
  readonly contact: string
  readonly #collectionId: string
  readonly #declared: S3Config
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
    this.#declared = collection.backend as S3Config
    this.root = this.#declared.prefix ? `${this.#declared.prefix}/` : ''
    this.middle = `/agent/${agentId}/snapshots/`
    this.#settings = settings
    this.#maxBytes = readLimit(settings.maxSnapshotBytes)
    this.#secrets = secrets
    // Without a prefix a rule would delete everything else in the bucket.
    this.#hasRule = !this.root
    const { bucket_secret: reference, region } = this.#declared
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
  ): Promise<string | null> {
    const folder = this.#folder(sessionId)
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
      this.#inBackground('deleting old checkpoints', deleted)
    } catch (error) {
      log('WARNING', `session ${sessionId}: no checkpoint: ${(error as Error).message}`)
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
    return ids.slice(-this.#settings.checkpoints) // those before are about to be deleted
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
    await this.run(async (bucket) => {
      await bucket.delete([folder + LATEST]) // first: now no running turn can be committed
      await bucket.deleteAll(folder, folder + LATEST) // which a new turn may have made again
    })
  }

  async sessions(): Promise<string[]> {
    const keys = await this.#keys(this.root)
    const found = keys.map((key) => key.slice(this.root.length).split(this.middle))
    const ids = found.flatMap(([id = '', rest]) => (rest && SESSION_ID.test(id) ? [id] : []))
    return [...new Set(ids)].sort()
  }

  async warnings(): Promise<Warning[]> {
    this.#hasRule = true // the session that a check saves sets no rule
    const keeps = await this.#keepsVersions().catch((error) => {
      if (!(error instanceof StoreUnavailable)) throw error
      return false // that cannot be seen
    })
    return keeps ? [['AML-W162', KEPT]] : []
  }

  async close(): Promise<void> {
    await Promise.all(this.#background)
    const client = await this.#client
    client?.destroy()
    this.#client = null
  }

  /** Whether the bucket keeps old versions of objects, also of those that were deleted. */
  async #keepsVersions(): Promise<boolean> {
    return await this.run(async ({ s3, Bucket, stop }) => {
      const { Status } = await s3.getBucketVersioning({ Bucket }, stop)
      return Status !== undefined // or else it never did
    })
  }

  #folder(sessionId: string): string {
    return this.root + sessionId + this.middle
  }

  #checkpoint(sessionId: string, checkpoint: string): string {
    return `${this.#folder(sessionId)}${HISTORY}snapshot_${checkpoint}.json`
  }

  /** Return what `use` returns of the bucket. Throws StoreUnavailable. */
  async run<T>(use: (bucket: Objects) => Promise<T>): Promise<T> {
    const { bucket_secret: reference = '', region, ttl_days: days = null } = this.#declared
    let name = `bucket of secret '${reference}'`
    const client = await (this.#client ??= connect(region))
    try {
      return await withinSeconds(this.#settings.storeTimeoutSeconds, async (abortSignal) => {
        const Bucket = await this.#secrets.get(secretRefs(this.#declared)[0]!)
        name = `bucket '${Bucket}' in ${region}`
        return await use(new Objects(client, Bucket, { abortSignal }, days))
      })
    } catch (error) {
      if (error instanceof Conflict) throw error
      const status = statusOf(error)
      throw unavailable(name, error, status >= 400 && status < 500)
    }
  }

  /** Return the keys that start so; each page is a call, bounded in time by itself. */
  async #keys(prefix: string): Promise<string[]> {
    const found: string[] = []
    let token: string | undefined
    do {
      const [keys, next] = await this.run((bucket) => bucket.page(prefix, token))
      found.push(...keys)
      token = next
    } while (token)
    return found
  }

  /** Start what no turn waits for: the lifecycle rule, and the deletion of old checkpoints. */
  #setRule(): void {
    if (this.#hasRule) return
    this.#hasRule = true
    const rule = [this.#collectionId, this.root, this.#declared.ttl_days ?? null] as const
    const ensured = this.run((bucket) => ensureRule(bucket, ...rule))
    this.#inBackground('the lifecycle rule', ensured)
  }

  async #deleteCheckpoints(prefix: string): Promise<void> {
    const keys = (await this.#keys(prefix)).slice(0, -this.#settings.checkpoints)
    await this.run((bucket) => bucket.delete(keys))
  }

  #inBackground(what: string, work: Promise<void>): void {
    const logged = work.catch((error: Error) => {
      log('WARNING', `s3: ${what} failed: ${error.message}`)
    })
    this.#background.add(logged)
    void logged.then(() => this.#background.delete(logged))
  }
}

/** Load and make the client: a start does not wait for it, and the time limit leaves it out. */
async function connect(region: string): Promise<S3> {
  const { S3 } = await import('@aws-sdk/client-s3')
  return new S3({
    region,
    maxAttempts: 2,
    // Other servers than AWS have no host name for each bucket, and may lack newer checksums.
    forcePathStyle: Boolean(process.env.AWS_ENDPOINT_URL_S3 || process.env.AWS_ENDPOINT_URL),
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
  })
}

/** A body was cut off, or changed on its way. */
class SpoiltBody extends Error {}

/** The objects of one bucket, as one call sees them; each method throws the client's errors. */
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

  /** Return the object, `known` where it is unchanged; one of over `maxBytes` is empty. */
  async get(Key: string, known: Stored | null, maxBytes: number): Promise<Stored | null> {
    try {
      return await this.#get(Key, known, maxBytes)
    } catch (error) {
      if (!(error instanceof SpoiltBody)) throw error
      return await this.#get(Key, known, maxBytes)
    }
  }

  async #get(Key: string, known: Stored | null, maxBytes: number): Promise<Stored | null> {
    const { s3, Bucket, stop } = this
    const condition = known?.revision ? { IfNoneMatch: known.revision } : {}
    try {
      const wanted = { Bucket, Key, ChecksumMode: 'ENABLED', ...condition } as const
      const found = await s3.getObject(wanted, stop)
      const isSmall = (found.ContentLength ?? Infinity) <= maxBytes
      const read = isSmall ? found.Body?.transformToByteArray() : null
      const bytes = await read?.catch((error: unknown) => {
        throw new SpoiltBody('', { cause: error })
      })
      if (found.Body instanceof Readable) found.Body.destroy() // it may not have been read
      if (this.isExpired(found.LastModified)) return null
      return { revision: found.ETag ?? null, snapshot: bytes ? decode(bytes) : '' }
    } catch (error) {
      if ((error as Error).name === 'NoSuchKey') return null
      if (statusOf(error) !== 304) throw error
      if (this.#days === null) return known
      // The client does not return the headers of a 304.
      const found = await this.#head(Key)
      return found && !this.isExpired(found.LastModified) ? known : null
    }
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
      const found = await this.#head(Key)
      if (!found || !this.isExpired(found.LastModified)) throw error
      return await this.put(Key, Body, { IfMatch: found.ETag })
    }
  }

  /** Move the object; a failure halfway leaves both. Throws Conflict. */
  async move(from: string, Key: string, revision: string): Promise<void> {
    const { s3, Bucket, stop } = this
    const CopySource = encodeURIComponent(`${Bucket}/${from}`)
    const copy = { Bucket, Key, CopySource, CopySourceIfMatch: revision }
    await s3.copyObject(copy, stop).catch(refuse)
    await s3.deleteObject({ Bucket, Key: from, IfMatch: revision }, stop).catch((error) => {
      if (statusOf(error) !== 404) refuse(error) // it was deleted; the acknowledgement was lost
    })
  }

  /** Return a page of the keys that start so and have not expired, and the next token. */
  async page(Prefix: string, ContinuationToken?: string): Promise<[string[], string | undefined]> {
    const { s3, Bucket, stop } = this
    const page = await s3.listObjectsV2({ Bucket, Prefix, ContinuationToken }, stop)
    const live = page.Contents?.filter(({ LastModified }) => !this.isExpired(LastModified)) ?? []
    return [live.map(({ Key = '' }) => Key), page.NextContinuationToken]
  }

  /** Delete the objects, there or not. */
  async delete(keys: string[]): Promise<void> {
    for (const Key of keys) await this.s3.deleteObject({ Bucket: this.Bucket, Key }, this.stop)
  }

  /** Delete every object whose key starts so, expired or not, except one. */
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
        if (Errors[0]) throw new StoreUnavailable(`not all objects were deleted: ${Errors[0].Code}`)
      }
      ContinuationToken = page.NextContinuationToken
    } while (ContinuationToken)
  }

  /** Return the facts of an object, or null if it has been deleted. */
  async #head(Key: string): Promise<HeadObjectCommandOutput | null> {
    try {
      return await this.s3.headObject({ Bucket: this.Bucket, Key }, this.stop)
    } catch (error) {
      if (statusOf(error) === 404) return null
      throw error
    }
  }

  isExpired(changed: Date | undefined): boolean {
    if (this.#days === null || !changed) return false
    const now = Date.now() + this.s3.config.systemClockOffset // the clock of S3
    return now - changed.getTime() > this.#days * DAY
  }
}

/** Have S3 delete what is older, or with null no longer; rules of others are kept. */
async function ensureRule(
  { s3, Bucket, stop }: Objects,
  collectionId: string,
  prefix: string,
  days: number | null,
): Promise<void> {
  // With the prefix, as several projects may share a bucket; once it was without.
  const names = [`aml-${prefix}${collectionId}`.slice(0, 255), `aml-${collectionId}`] as const
  const rule = {
    ID: names[0],
    Filter: { Prefix: prefix },
    Status: 'Enabled' as const,
    Expiration: { Days: days ?? 0 },
    NoncurrentVersionExpiration: { NoncurrentDays: days ?? 0 },
  }
  const asked = s3.getBucketLifecycleConfiguration({ Bucket }, stop)
  const found: Partial<GetBucketLifecycleConfigurationOutput> = await asked.catch((error) => {
    if (error.name === 'NoSuchLifecycleConfiguration') return {}
    throw error
  })
  const { Rules = [], TransitionDefaultMinimumObjectSize } = found
  if (Rules.some((other) => isDeepStrictEqual(other, rule))) return
  const isOwn = ({ ID = '', Filter }: LifecycleRule) =>
    names.includes(ID) && Filter?.Prefix === prefix
  const wanted = [...Rules.filter((other) => !isOwn(other)), ...(days === null ? [] : [rule])]
  if (isDeepStrictEqual(wanted, Rules)) return
  const configuration = { Bucket, LifecycleConfiguration: { Rules: wanted } }
  const kept = { TransitionDefaultMinimumObjectSize } // a setting beside the rules
  if (wanted.length > 0)
    await s3.putBucketLifecycleConfiguration({ ...configuration, ...kept }, stop)
  else await s3.deleteBucketLifecycle({ Bucket }, stop)
  log('INFO', `s3: lifecycle rule ${rule.ID}: ${days === null ? 'removed' : `${days} days`}`)
}

function statusOf(error: unknown): number {
  const { $metadata } = error as { $metadata?: { httpStatusCode?: number } }
  return $metadata?.httpStatusCode ?? 0
}

/** Throw Conflict for a condition that did not hold, and any other error as it is. */
function refuse(error: unknown): never {
  const isLost = [409, 412].includes(statusOf(error)) || (error as Error).name === 'NoSuchKey'
  throw isLost ? new Conflict() : error
}
