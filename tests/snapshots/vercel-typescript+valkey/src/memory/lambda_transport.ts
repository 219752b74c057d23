// A custom backend in a Lambda function, which is called with the AWS SDK's own credentials.

import type { LambdaClient, LambdaServiceException } from '@aws-sdk/client-lambda'

import { Unavailable } from './backends.ts'
import { causeOf, needRegion } from './causes.ts'
import type { Options } from './options.ts'
import { type Answer, checkEtag, type Condition, type Lambda, parse } from './transport.ts'
import { type Request, resolve, Transport } from './transport.ts'
import { isObject, readBody, toText } from './wire.ts'

/** A function that finds the operation in its payload, and conditions of a save too. */
export class LambdaTransport extends Transport {
  readonly #function: string
  readonly #limit: number
  #client: LambdaClient | null = null

  constructor(declared: Lambda, options: Options) {
    const name = resolve(declared.function_arn ?? declared.function_id ?? '')
    super(declared, `Lambda function ${name}`)
    this.#function = name
    this.#limit = 8 * options.maxSnapshotBytes
  }

  protected async send(request: Request, condition: Condition, stop: AbortSignal): Promise<Answer> {
    const { InvokeCommand } = await import('@aws-sdk/client-lambda')
    const asked: Request = { ...request }
    // No answer to a load says "unchanged".
    if (request.operation === 'save_snapshot') {
      if (condition.match) asked.if_match = condition.match
      if (condition.noneMatch) asked.if_none_match = condition.noneMatch
    }
    const command = new InvokeCommand({
      FunctionName: this.#function,
      Payload: Buffer.from(JSON.stringify(asked)),
    })
    this.#client ??= await this.#open()
    try {
      const told = await this.#client.send(command, { abortSignal: stop })
      if (told.FunctionError) return { status: 500, failure: 'the function failed' }
      return judge(told.Payload ?? Buffer.of())
    } catch (error) {
      if (error instanceof Unavailable) {
        throw new Unavailable(error.message.replace(/\n[^]*/, '')) // what the SDK adds
      }
      const { $metadata: { httpStatusCode: status } = {}, name } =
        error as Partial<LambdaServiceException>
      if (!status || status < 300) throw error // the connection broke later
      const why = causeOf(error, status) || name?.replace(/[^A-Za-z]/g, '').slice(0, 64)
      return { status, failure: `${why} (HTTP ${status})` }
    }
  }

  async #open(): Promise<LambdaClient> {
    const { LambdaClient } = await import('@aws-sdk/client-lambda')
    const region = /^arn:[^:]*:lambda:([^:]+):/.exec(this.#function)?.[1]
    const limit = this.#limit
    const client = new LambdaClient({
      ...(region && { region }),
      maxAttempts: 1,
      requestHandler: { socketAcquisitionWarningTimeout: 1 }, // its timer would outlive a failure
      streamCollector: (stream: AsyncIterable<Uint8Array>) => readBody(stream, limit),
    })
    await needRegion(client)
    return client
  }

  override async close(): Promise<void> {
    this.#client?.destroy()
    this.#client = null
  }
}

function judge(body: Uint8Array): Answer {
  let value
  try {
    value = parse(body)
  } catch {
    throw new Unavailable('a payload that is no JSON')
  }
  if (!isObject(value)) return { status: 200, value }
  const { etag, ...rest } = value
  if (rest.ok === false && rest.error === 'conflict') return { status: 412 }
  const raw = Buffer.from(toText(rest))
  return { status: 200, value: rest, etag: checkEtag(etag), raw }
}
