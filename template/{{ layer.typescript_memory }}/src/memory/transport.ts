// Calls of a custom backend, over REST or of a Lambda function: with retries, and in time.

import { setTimeout as sleep } from 'node:timers/promises'

import { describe } from '../contract.ts'
import { Unavailable } from './backends.ts'
import { causeOf, UNSENT } from './causes.ts'
import type { Collection } from './models.ts'

const ETAG = /^(?!\*$)[!-~]{1,256}$/
/** The value of what is stored, by its ETag, and is no JSON. */
export const UNREADABLE = Symbol('unreadable')

/** The payload of one of the six operations. */
export interface Request {
  operation: Operation
  session_id: string
  scope?: { type: string; scope_id: string }
  [field: string]: unknown
}

/** The conditions that HTTP calls If-Match and If-None-Match. */
export interface Condition {
  match?: string | null | undefined
  noneMatch?: string | null | undefined
}

/** What an endpoint answered; over Lambda too, its status is what HTTP would say. */
export interface Answer {
  status: number
  value?: unknown
  etag?: string | null
  raw?: Buffer
  /** Milliseconds. */
  retryAfter?: number
  /** Why this is no answer of the endpoint itself. */
  failure?: string
  /** With status 0: whether nothing can have been changed. */
  isUnsent?: boolean
}

type Operation =
  `${'save' | 'load'}_${'snapshot' | 'manifest'}` | 'list_snapshot_ids' | 'delete_session'
type Custom = Extract<Collection['backend'], { type: 'custom' }>
/** What a collection declares of a transport. */
export type Declared = NonNullable<Custom['transport']>
export type RestApi = Extract<Declared, { type: 'rest-api' }>
export type Lambda = Extract<Declared, { type: 'lambda' }>

/** One endpoint of the contract's six operations. */
export abstract class Transport {
  /** What it contacts, without secrets. */
  readonly contact: string
  readonly #declared: Declared

  constructor(declared: Declared, contact: string) {
    this.#declared = declared
    this.contact = contact
  }

  /**
   * Send one operation.
   *
   * The answer has the status 2xx, 304, 404, 409 or 412. All attempts together take at most
   * max_attempts x timeout_ms. Throws Unavailable.
   */
  async call(request: Request, condition: Condition = {}): Promise<Answer> {
    const { timeout_ms: time, retry_policy: policy } = this.#declared
    const end = performance.now() + policy.max_attempts * time
    let isCertain = true
    for (let attempt = 1; ; attempt++) {
      const answer = await this.#attempt(request, condition, end)
      const { status, retryAfter = 0, failure = `HTTP ${status}` } = answer
      isCertain &&= answer.isUnsent ?? (status >= 400 && status < 500)
      const jittered = policy.backoff_ms * 2 ** (attempt - 1) * (0.5 + Math.random() / 2)
      const pause = Math.max(jittered, retryAfter)
      const isLast = attempt === policy.max_attempts || performance.now() + pause >= end
      if (isLast || (status > 0 && !policy.on_status.includes(status))) {
        const isTold = (status >= 200 && status < 300) || [304, 404, 409, 412].includes(status)
        if (isTold && !answer.failure) return answer
        const what = `${request.operation} of ${this.contact}: ${failure}, attempt ${attempt}`
        throw new Unavailable(what, isCertain)
      }
      await sleep(pause)
    }
  }

  protected abstract send(
    request: Request,
    condition: Condition,
    stop: AbortSignal,
  ): Promise<Answer>

  /** Close what is open. */
  async close(): Promise<void> {}

  /** The answer; its status is 0 when there is none. */
  async #attempt(request: Request, condition: Condition, end: number): Promise<Answer> {
    const [own, time] = [new AbortController(), this.#declared.timeout_ms]
    const { promise: late, resolve } = Promise.withResolvers<Answer>()
    const answer = { status: 0, failure: `no answer within ${time / 1000} s` }
    const timer = setTimeout(resolve, Math.min(time, end - performance.now()), answer)
    try {
      return await Promise.race([this.send(request, condition, own.signal), late])
    } catch (error) {
      if (error instanceof Unavailable) {
        return { status: 0, failure: error.message, isUnsent: error.isCertain }
      }
      const { cause = error } = error as { cause?: unknown }
      const failure = causeOf(error) || (cause as { code?: string }).code || describe(cause)
      return { status: 0, failure, isUnsent: UNSENT.has(failure) }
    } finally {
      clearTimeout(timer)
      own.abort() // ends what did not come to its end, such as a body that hangs
    }
  }
}

/** The address itself, or the environment variable that `env:NAME` names. */
export function resolve(reference: string): string {
  if (!reference.startsWith('env:')) return reference
  const name = reference.slice(4)
  const value = process.env[name]?.trim()
  if (!value) throw new Unavailable(`address '${reference}': set ${name}`, true)
  return value
}

/** The value of a JSON text in UTF-8, or throw. */
export function parse(body: Uint8Array): unknown {
  return JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body))
}

/** An ETag that can be sent back; null when there is none. Throws Unavailable. */
export function checkEtag(etag: unknown): string | null {
  if (etag === null || etag === undefined || etag === '') return null
  if (typeof etag === 'string' && ETAG.test(etag)) return etag
  throw new Unavailable('an ETag that is not 1 to 256 visible characters, or is *')
}
