// AWS clients of long-term memory: each call has a time limit and no retries.

import type { SecretRef } from '../collections/fields.ts'
import { SecretError, type Secrets } from '../collections/secrets.ts'
import { startTimer } from '../deadline.ts'
import { describe } from '../log.ts'
import { bounded, MemoryRefused, MemoryUnavailable } from './base.ts'

export type Call = 'recall' | 'record' | 'control'
export type Stop = { abortSignal: AbortSignal }
type Failed = { name: string; $metadata?: { httpStatusCode?: number } }

const SECONDS = 10 // for calls outside turns
const REFUSED = ['ValidationException', 'InvalidInputException', 'SerializationException']
const BUSY = [409, 429]

/** The clients of the process, imported on first use. */
export class Clients {
  readonly #recallSeconds: number
  readonly #clients = new Map<string, Promise<{ destroy(): void }>>()

  constructor(recallSeconds: number) {
    this.#recallSeconds = recallSeconds
  }

  /** Return the client with this name; the first call creates it. */
  get<T extends { destroy(): void }>(name: string, make: () => Promise<T>): Promise<T> {
    const client = this.#clients.get(name) ?? make()
    this.#clients.set(name, client)
    return client as Promise<T>
  }

  /** Call a service within a time limit. Throws MemoryUnavailable. */
  async run<T>(service: string, call: Call, use: (stop: Stop) => Promise<T>): Promise<T> {
    const seconds = call === 'recall' ? this.#recallSeconds : SECONDS
    const timeout = new AbortController()
    const stopTimer = startTimer(seconds, () => timeout.abort())
    const reason = `${service}: no answer within ${seconds} s`
    try {
      return await bounded(timeout.signal, reason, () => use({ abortSignal: timeout.signal }))
    } catch (error) {
      if (error instanceof MemoryUnavailable) throw error
      const { name: code, $metadata: { httpStatusCode: status = 500 } = {} } = error as Failed
      const isTransient = status >= 500 || BUSY.includes(status)
      const Failure = REFUSED.includes(code) ? MemoryRefused : MemoryUnavailable
      throw new Failure(`${service}: ${describe(error)}`, { isTransient, code })
    } finally {
      stopTimer()
    }
  }

  /** Close the connections. */
  async close(): Promise<void> {
    const clients = await Promise.allSettled(this.#clients.values())
    this.#clients.clear()
    for (const client of clients) if (client.status === 'fulfilled') client.value.destroy()
  }
}

/** Return the configuration of a client. */
export function configOf(region: string) {
  // Each call's signal bounds its time; the timer of this warning would outlive a failed call.
  return { region, maxAttempts: 1, requestHandler: { socketAcquisitionWarningTimeout: 1 } }
}

/** Return the value of a secret. Throws MemoryUnavailable. */
export async function secretOf(secrets: Secrets, ref: SecretRef): Promise<string> {
  try {
    return await secrets.get(ref)
  } catch (error) {
    if (!(error instanceof SecretError)) throw error
    throw new MemoryUnavailable(error.message, { isTransient: false })
  }
}
