// The clients of AgentCore Memory: calls bounded in time, and what their errors mean.

import type { BedrockAgentCore } from '@aws-sdk/client-bedrock-agentcore'
import type { BedrockAgentCoreControl } from '@aws-sdk/client-bedrock-agentcore-control'

import { Unavailable } from './backends.ts'
import { bounded } from './bounded.ts'
import { causeOf, told } from './causes.ts'
import { Refused } from './errors.ts'
import type { Options } from './options.ts'
import { codeOf, statusOf } from './s3_client.ts'
import { SecretError } from './secrets.ts'

export type Client = {
  recall: BedrockAgentCore
  record: BedrockAgentCore
  control: BedrockAgentCoreControl
}
export type Kind = keyof Client
/** What ends a call. */
export type Stop = { abortSignal: AbortSignal }
type Use<K extends Kind, T> = (client: Client[K], stop: Stop) => Promise<T>

const SERVICE = 'AgentCore Memory'
const WRITING = 10 // seconds
const INVALID = ['ValidationException', 'InvalidInputException', 'SerializationException']

/** One client of each kind and region, which all memories of a process share. */
export class Clients {
  readonly #recalling: number
  readonly #clients = new Map<string, Promise<Client[Kind]>>()

  constructor(options: Options) {
    this.#recalling = options.recallTimeoutSeconds
  }

  /** The client; the first call imports what it needs. It tries once, in the time of its kind. */
  get<K extends Kind>(kind: K, region: string): Promise<Client[K]> {
    const name = `${kind} ${region}`
    const known = this.#clients.get(name) ?? this.#connect(kind, region)
    this.#clients.set(name, known)
    return known as Promise<Client[K]>
  }

  /** What `use` returns of a client. Throws Unavailable, at the latest in time, or Refused. */
  async run<K extends Kind, T>(
    kind: K,
    region: string,
    use: Use<K, T>,
    stop?: AbortSignal | null,
  ): Promise<T> {
    try {
      return await bounded(this.#secondsOf(kind), async (late) => {
        const abortSignal = stop ? AbortSignal.any([stop, late]) : late
        return await use(await this.get(kind, region), { abortSignal })
      })
    } catch (error) {
      if (error instanceof SecretError) throw error
      if (error instanceof Unavailable) throw new Unavailable(told(SERVICE, error.message))
      const [why, status] = [codeOf(error), statusOf(error)]
      const cause = causeOf(error, why, status) || why
      const what = told(SERVICE, status ? `${cause} (HTTP ${status})` : cause)
      if (INVALID.includes(why)) throw new Refused(what, true)
      throw new Unavailable(what, status >= 400 && status < 500)
    }
  }

  /** Begin to import, so that the first recall does not wait for it. */
  prepare(region: string): void {
    this.get('recall', region).catch(() => {}) // the call that needs it tells
  }

  /** Close the connections. */
  async close(): Promise<void> {
    const clients = [...this.#clients.values()]
    this.#clients.clear()
    for (const client of await Promise.allSettled(clients)) {
      if (client.status === 'fulfilled') client.value.destroy()
    }
  }

  #secondsOf(kind: Kind): number {
    return kind === 'recall' ? this.#recalling : WRITING
  }

  async #connect(kind: Kind, region: string): Promise<Client[Kind]> {
    const milliseconds = this.#secondsOf(kind) * 1000
    const given = {
      region,
      maxAttempts: 1,
      requestHandler: {
        connectionTimeout: milliseconds,
        requestTimeout: milliseconds,
        throwOnRequestTimeout: true,
        socketAcquisitionWarningTimeout: 1, // its timer would outlive a failure
      },
    }
    if (kind === 'control') {
      const aws = await import('@aws-sdk/client-bedrock-agentcore-control')
      return new aws.BedrockAgentCoreControl(given)
    }
    const aws = await import('@aws-sdk/client-bedrock-agentcore')
    return new aws.BedrockAgentCore(given)
  }
}
