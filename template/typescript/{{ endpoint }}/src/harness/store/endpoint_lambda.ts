// Calls the `custom` backend as a Lambda function, with the AWS credentials of this process.

import { InvokeCommand, LambdaClient, type LambdaServiceException } from '@aws-sdk/client-lambda'

import { type LambdaTransport as LambdaConfig, resolve } from '../collections/session_backend.ts'
import { describe } from '../log.ts'
import { StoreUnavailable } from './base.ts'
import { type Answer, checkEtag, type Condition, parse, readBody } from './endpoint.ts'
import type { Request, Transport } from './endpoint.ts'

/**
 * Sends an operation as the payload of a function.
 *
 * The payload has the conditions of a save as `if_match` and `if_none_match`. The function returns
 * the ETag as `etag`, and {"ok": false, "error": "conflict"} for 412.
 */
export class LambdaTransport implements Transport {
  readonly contact: string
  readonly #function: string
  readonly #maxBytes: number
  #client: LambdaClient | null = null

  constructor(config: LambdaConfig, maxBytes: number) {
    const declared = config.function_arn ?? config.function_id ?? ''
    this.#function = resolve(declared)
    this.#maxBytes = maxBytes
    this.contact = `Lambda function ${this.#function || declared}`
  }

  async send(request: Request, condition: Condition, stop: AbortSignal): Promise<Answer> {
    const payload: Request = { ...request }
    // The contract has no "unchanged" for a load.
    if (request.operation === 'save_snapshot') {
      if (condition.match) payload.if_match = condition.match
      if (condition.noneMatch) payload.if_none_match = condition.noneMatch
    }
    const command = new InvokeCommand({
      FunctionName: this.#function,
      Payload: Buffer.from(JSON.stringify(payload)),
    })
    this.#client ??= await this.#connect()
    try {
      const answer = await this.#client.send(command, { abortSignal: stop })
      if (answer.FunctionError) return { status: 500, failure: 'the function failed' }
      return toAnswer(answer.Payload ?? Buffer.of())
    } catch (error) {
      if (error instanceof StoreUnavailable) {
        // Omit the hints that the SDK adds.
        throw new StoreUnavailable(error.message.replace(/\n[^]*/, ''))
      }
      const { $metadata } = error as Partial<LambdaServiceException>
      const status = $metadata?.httpStatusCode ?? 0
      if (status < 300) throw error // the connection broke, possibly within the response
      return { status, failure: describe(error) }
    }
  }

  close(): void {
    this.#client?.destroy()
    this.#client = null
  }

  async #connect(): Promise<LambdaClient> {
    const region = /^arn:[^:]*:lambda:([^:]+):/.exec(this.#function)?.[1]
    const client = new LambdaClient({
      ...(region && { region }),
      maxAttempts: 1,
      // Its timer would outlive a failed call.
      requestHandler: { socketAcquisitionWarningTimeout: 1 },
      streamCollector: (stream: AsyncIterable<Uint8Array>) => readBody(stream, this.#maxBytes),
    })
    await client.config.region().catch(() => {
      throw new StoreUnavailable('no AWS region: set AWS_REGION', { indeterminate: false })
    })
    return client
  }
}

/** Parse a payload. Throws StoreUnavailable. */
function toAnswer(body: Uint8Array): Answer {
  let value: unknown
  try {
    value = parse(body)
  } catch {
    throw new StoreUnavailable('the payload of the response is not JSON')
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return { status: 200, value }
  }
  const { etag, ...rest } = value as Record<string, unknown>
  if (rest.ok === false && rest.error === 'conflict') return { status: 412 }
  return { status: 200, value: rest, etag: checkEtag(etag), raw: toBytes(rest, body) }
}

/** Return the JSON of a value, or the payload if the value is nested too deeply. */
function toBytes(value: unknown, payload: Uint8Array): Buffer {
  try {
    return Buffer.from(JSON.stringify(value))
  } catch {
    return Buffer.from(payload)
  }
}
