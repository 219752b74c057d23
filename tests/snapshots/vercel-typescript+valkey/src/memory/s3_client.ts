// The connection to one bucket: calls bounded in time, and what their errors mean.

import type { S3 } from '@aws-sdk/client-s3'

import { describe, log } from '../contract.ts'
import { Conflict, Unavailable } from './backends.ts'
import { bounded } from './bounded.ts'
import type { Secrets } from './secrets.ts'

type Failure = Error & { code?: string; $metadata?: { httpStatusCode?: number } }

/** What a request needs: a client, the name of the bucket, and a signal that ends it. */
export type Bucket = { s3: S3; Bucket: string; stop: { abortSignal: AbortSignal } }
type Use<T> = (bucket: Bucket) => Promise<T>

// Errors before anything was sent.
const NOT_SENT = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'CredentialsProviderError']

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
    try {
      return await bounded(this.#seconds, async (abortSignal) => {
        const Bucket = await this.#secrets.get(this.#reference)
        const s3 = (this.#client ??= await this.#connect())
        return await use({ s3, Bucket, stop: { abortSignal } })
      })
    } catch (error) {
      if (error instanceof Conflict || error instanceof Unavailable) throw error
      const [why, status] = [codeOf(error), statusOf(error)]
      const what = status ? `s3: ${why} (HTTP ${status})` : `s3: ${why}`
      const isCertain = (status >= 400 && status < 500) || NOT_SENT.includes(why)
      throw new Unavailable(what, isCertain)
    }
  }

  /** Begin what no turn waits for; failing is a warning. */
  later(what: string, use: Use<void>): void {
    const work = this.run(use).catch((error: Error) => {
      const why = error instanceof Unavailable ? error.message : describe(error)
      log('WARNING', `s3: ${what} failed: ${why}`)
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
  return [code, name].find((word) => /^\w{1,80}$/.test(word)) ?? describe(error)
}
