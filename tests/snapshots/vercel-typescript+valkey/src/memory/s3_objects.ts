// The objects of one bucket: conditional changes, and none that is older than its time to live.

import { Readable } from 'node:stream'

import type { PutObjectCommandInput, _Object } from '@aws-sdk/client-s3'

import { Conflict, type Stored, Unavailable } from './backends.ts'
import { decode } from './bounded.ts'
import { type Bucket, codeOf, statusOf, wordsOf } from './s3_client.ts'

const DAY = 86_400_000

/** What one call of the store does; each method throws what the client throws. */
export class Objects {
  readonly #bucket: Bucket
  readonly #days: number | null
  readonly #now: (() => Date) | null

  /** `days` is the time to live since the last change; without `now` the clock of S3 counts. */
  constructor(bucket: Bucket, days: number | null = null, now: (() => Date) | null = null) {
    this.#bucket = bucket
    this.#days = days
    this.#now = now
  }

  /** The object, or just its revision when that is `known`; over `most` bytes it is empty. */
  async get(Key: string, known: string | null, most: number): Promise<Stored | null> {
    const { s3, Bucket, stop } = this.#bucket
    const condition = known ? { IfNoneMatch: known } : {}
    try {
      const found = await s3.getObject({ Bucket, Key, ...condition }, stop)
      const isSmall = (found.ContentLength ?? Infinity) <= most
      const bytes = isSmall ? await found.Body?.transformToByteArray() : null
      if (found.Body instanceof Readable) found.Body.destroy() // it may not have been read
      if (this.#isExpired(found.LastModified)) return null
      return { revision: found.ETag ?? null, snapshot: bytes ? decode(bytes) : '' }
    } catch (error) {
      if (codeOf(error) === 'NoSuchKey') return null
      if (statusOf(error) !== 304) throw error
      // The client does not hand on the headers of a 304.
      const modified = this.#days ? (await this.#head(Key)).LastModified : undefined
      return this.#isExpired(modified) ? null : { revision: known, snapshot: null }
    }
  }

  /** Write the object and return its revision. Throws Conflict. */
  async put(Key: string, Body: string, condition: Partial<PutObjectCommandInput> = {}) {
    const { s3, Bucket, stop } = this.#bucket
    const what = { Bucket, Key, Body, ContentType: 'application/json', ...condition }
    const { ETag } = await s3.putObject(what, stop).catch(refuse)
    return ETag ?? null
  }

  /** Write an object that is absent or expired, and return its revision. Throws Conflict. */
  async create(Key: string, Body: string): Promise<string | null> {
    try {
      return await this.put(Key, Body, { IfNoneMatch: '*' })
    } catch (error) {
      if (!(error instanceof Conflict)) throw error
      const { ETag, LastModified } = await this.#head(Key)
      if (!this.#isExpired(LastModified)) throw error
      return await this.put(Key, Body, { IfMatch: ETag })
    }
  }

  /** Move the object; both are there when that fails halfway. Throws Conflict. */
  async move(old: string, Key: string, revision: string): Promise<void> {
    const { s3, Bucket, stop } = this.#bucket
    const CopySource = encodeURIComponent(`${Bucket}/${old}`)
    const copy = { Bucket, Key, CopySource, CopySourceIfMatch: revision }
    await s3.copyObject(copy, stop).catch(refuse)
    await s3.deleteObject({ Bucket, Key: old, IfMatch: revision }, stop).catch((error) => {
      if (statusOf(error) !== 404) refuse(error) // or else it was deleted, and the reply lost
    })
  }

  /** The keys that begin so and have not expired, in order. */
  async keys(prefix: string): Promise<string[]> {
    return await allKeys(async (use) => await use(this), prefix)
  }

  /** A page of such keys, and the token of the next one. */
  async page(Prefix: string, ContinuationToken?: string): Promise<[string[], string | undefined]> {
    const { s3, Bucket, stop } = this.#bucket
    const page = await s3.listObjectsV2({ Bucket, Prefix, ContinuationToken }, stop)
    const live = page.Contents?.filter(({ LastModified }) => !this.#isExpired(LastModified)) ?? []
    return [live.map(({ Key = '' }) => Key), page.NextContinuationToken]
  }

  /** Delete the objects, there or not. */
  async delete(keys: string[]): Promise<void> {
    const { s3, Bucket, stop } = this.#bucket
    for (const Key of keys) await s3.deleteObject({ Bucket, Key }, stop)
  }

  /** Delete what begins so, expired or not, but for one key. */
  async deleteAll(prefix: string, but: string): Promise<void> {
    const { s3, Bucket, stop } = this.#bucket
    for await (const items of this.#pages(prefix)) {
      const Objects = items.flatMap(({ Key }) => (Key === but ? [] : [{ Key }]))
      if (Objects.length === 0) continue
      const Delete = { Objects, Quiet: true }
      const { Errors = [] } = await s3.deleteObjects({ Bucket, Delete }, stop)
      const [error] = Errors
      const why = error && wordsOf({ code: error.Code })
      if (why) throw new Unavailable(`one of the objects was not deleted: ${why}`)
    }
  }

  async *#pages(Prefix: string): AsyncGenerator<_Object[]> {
    const { s3, Bucket, stop } = this.#bucket
    let ContinuationToken: string | undefined
    do {
      const page = await s3.listObjectsV2({ Bucket, Prefix, ContinuationToken }, stop)
      if (page.Contents?.length) yield page.Contents
      ContinuationToken = page.NextContinuationToken
    } while (ContinuationToken)
  }

  #head(Key: string) {
    const { s3, Bucket, stop } = this.#bucket
    return s3.headObject({ Bucket, Key }, stop)
  }

  #isExpired(changed: Date | undefined): boolean {
    if (this.#days === null || !changed) return false
    const { systemClockOffset } = this.#bucket.s3.config
    const now = this.#now?.().getTime() ?? Date.now() + systemClockOffset
    return now - changed.getTime() > this.#days * DAY
  }
}

type Run = <T>(use: (objects: Objects) => Promise<T>) => Promise<T>

/** The keys that begin so and have not expired; each page is a call, bounded by itself. */
export async function allKeys(run: Run, prefix: string): Promise<string[]> {
  let [found, token] = await run((objects) => objects.page(prefix))
  for (let keys = found; token; found = found.concat(keys)) {
    ;[keys, token] = await run((objects) => objects.page(prefix, token))
  }
  return found
}

/** Throw Conflict for an error by which a condition did not hold, and any other as it is. */
function refuse(error: unknown): never {
  const isLost = [409, 412].includes(statusOf(error)) || codeOf(error) === 'NoSuchKey'
  throw isLost ? new Conflict() : error
}
