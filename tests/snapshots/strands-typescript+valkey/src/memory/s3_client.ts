// The connection to one bucket: calls bounded in time, and what their errors mean.

import type { S3 } from '@aws-sdk/client-s3'

import { log } from '../contract.ts'
import { Conflict, Unavailable } from './backends.ts'
import { bounded } from './bounded.ts'
import { causeOf, told, UNSENT } from './causes.ts'
import type { Secrets } from './secrets.ts'

type Failure = Error & { code?: string; $metadata?: { httpStatusCode?: number } }

/** What a request needs: a client, the name of the bucket, and a signal that ends it. */
export type Bucket = { s3: S3; Bucket: string; stop: { abortSignal: AbortSignal } }
type Use<T> = (bucket: Bucket) => Promise<T>

const BUCKET = /^([A-Za-z0-9._-]{1,255}|arn:[A-Za-z0-9:/._-]{1,255})$/

/** A client of the bucket that a secret names; it is made by the first call. */
export class S3Client {
  readonly #reference: string
  readonly #region: string
  readonly #seconds: number
  readonly #secrets: Secrets
  readonly #waiting = new Set<Promise<void>>()
  #client: S3 | null = null

  constructor(reference: string, region: string, seconds: number, secrets: Secrets) {
    this.#reference = reference
    this.#region = region
    this.#seconds = seconds
    this.#secrets = secrets
  }

  /** What `use` returns of the bucket. Throws Unavailable, at the latest in time. */
  async run<T>(use: Use<T>): Promise<T> {
    let name = `secret '${this.#reference}'`
    try {
      return await bounded(this.#seconds, async (abortSignal) => {
        const Bucket = await this.#secrets.get(this.#reference)
        if (!BUCKET.test(Bucket)) throw new Unavailable(`${name} is no name of a bucket`, true)
        name = `bucket '${Bucket}'`
        const s3 = (this.#client ??= await this.#connect())
        return await use({ s3, Bucket, stop: { abortSignal } })
      })
    } catch (error) {
      if (error instanceof Conflict) throw error
      if (error instanceof Unavailable && error.isCertain) throw error
      const status = statusOf(error)
      const words = error instanceof Unavailable ? error.message : wordsOf(error)
      const why = status ? `${words} (HTTP ${status})` : words
      const isCertain = (status >= 400 && status < 500) || UNSENT.has(why)
      throw new Unavailable(told(`${name} in ${this.#region}`, why), isCertain)
    }
  }

  /** Begin what no turn waits for; failing is a warning. */
  later(what: string, use: Use<void>): void {
    const work = this.run(use).catch((error: Error) => {
      log('WARNING', `s3: ${what} failed: ${error.message}`)
    })
    this.#waiting.add(work)
    void work.then(() => this.#waiting.delete(work))
  }

  /** Wait for what was begun, and close the connections. */
  async close(): Promise<void> {
    await Promise.all(this.#waiting)
    this.#client?.destroy()
    this.#client = null
  }

  async #connect(): Promise<S3> {
    const aws = await import('@aws-sdk/client-s3')
    const isOwn = process.env.AWS_ENDPOINT_URL_S3 || process.env.AWS_ENDPOINT_URL
    return new aws.S3({
      region: this.#region,
      maxAttempts: 2,
      forcePathStyle: Boolean(isOwn),
      requestChecksumCalculation: 'WHEN_REQUIRED', // not all that speak S3 know the newer ones
      responseChecksumValidation: 'WHEN_REQUIRED',
    })
  }
}

/** The HTTP status of an error reply, or 0. */
export function statusOf(error: unknown): number {
  return (error as Failure).$metadata?.httpStatusCode ?? 0
}

/** The code of an error, such as NoSuchKey; its text may name the bucket. */
export function codeOf(error: unknown): string {
  const { code = '', name } = error as Failure
  return [code, name].find((word) => /^\w{1,80}$/.test(word)) ?? 'Error'
}

/** Why it failed, in words; of an error without any its code. */
export function wordsOf(error: unknown): string {
  return causeOf(error, codeOf(error), statusOf(error)) || codeOf(error)
}
