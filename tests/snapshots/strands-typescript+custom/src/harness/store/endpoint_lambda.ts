// An endpoint in a Lambda function, which is called with the AWS credentials of this process.

import { InvokeCommand, LambdaClient, type LambdaServiceException } from '@aws-sdk/client-lambda'

import { type LambdaTransport as LambdaConfig, resolve } from '../collections/session_backend.ts'
import { describe } from '../log.ts'
import { StoreUnavailable } from './base.ts'
import { type Answer, checkEtag, type Condition, parse, readBody } from './endpoint.ts'
import type { Request, Transport } from './endpoint.ts'

/** A function that finds the operation in its payload, and the conditions of a save too. */
export class LambdaTransport implements Transport {
  readonly contact: string
  readonly #function: string
  readonly #maxBytes: number
  #client: LambdaClient | null = null

  constructor(declared: LambdaConfig, maxBytes: number) {
    const given = declared.function_arn ?? declared.function_id ?? ''
    this.#function = resolve(given)
    this.#maxBytes = maxBytes
    this.contact = `Lambda function ${this.#function || given}`
  }

  async send(request: Request, condition: Condition, stop: AbortSignal): Promise<Answer> {
    const payload: Request = { ...request }
    // No answer to a load says "unchanged".
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
      return judge(answer.Payload ?? Buffer.of())
    } catch (error) {
      if (error instanceof StoreUnavailable) {
        throw new StoreUnavailable(error.message.replace(/\n[^]*/, '')) // without the SDK's hints
      }
      const { $metadata } = error as Partial<LambdaServiceException>
      const status = $metadata?.httpStatusCode ?? 0
      if (status < 300) throw error // the connection broke, if need be within the answer
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
      requestHandler: { socketAcquisitionWarningTimeout: 1 }, // its timer would outlive a failure
      streamCollector: (stream: AsyncIterable<Uint8Array>) => readBody(stream, this.#maxBytes),
    })
    await client.config.region().catch(() => {
      throw new StoreUnavailable('no AWS region: set AWS_REGION', { indeterminate: false })
    })
    return client
  }
}

function judge(body: Uint8Array): Answer {
  let value: unknown
  try {
    value = parse(body)
  } catch {
    throw new StoreUnavailable('the payload of the answer is not JSON')
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return { status: 200, value }
  }
  const { etag, ...rest } = value as Record<string, unknown>
  if (rest.ok === false && rest.error === 'conflict') return { status: 412 }
  return { status: 200, value: rest, etag: checkEtag(etag), raw: toBytes(rest, body) }
}

/** The JSON of a value; the payload itself where that is nested too deeply. */
function toBytes(value: unknown, payload: Uint8Array): Buffer {
  try {
    return Buffer.from(JSON.stringify(value))
  } catch {
    return Buffer.from(payload)
  }
}
