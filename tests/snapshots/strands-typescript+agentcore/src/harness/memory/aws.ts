// Calls of AWS that long-term memory makes: each tries once, within a time limit.

import type { SecretRef } from '../collections/fields.ts'
import { SecretError, type Secrets } from '../collections/secrets.ts'
import { startTimer } from '../deadline.ts'
import { describe } from '../log.ts'
import { bounded, MemoryRefused, MemoryUnavailable } from './base.ts'

export type Call = 'recall' | 'record' | 'control'
export type Stop = { abortSignal: AbortSignal }
type Failed = { name: string; $metadata?: { httpStatusCode?: number } }

const SECONDS = 10 // for calls that no turn waits for
const REFUSED = ['ValidationException', 'InvalidInputException', 'SerializationException']
const BUSY = [409, 429]

/** The clients of the process, which are imported when they are used. */
export class Clients {
  readonly #recallSeconds: number
  readonly #clients = new Map<string, Promise<{ destroy(): void }>>()

  constructor(recallSeconds: number) {
    this.#recallSeconds = recallSeconds
  }

  /** Return the client of this name; the first time it is made. */
  get<T extends { destroy(): void }>(name: string, make: () => Promise<T>): Promise<T> {
    const known = this.#clients.get(name) ?? make()
    this.#clients.set(name, known)
    return known as Promise<T>
  }

  /** Call a service within the time limit of the call. Throws MemoryUnavailable. */
  async run<T>(service: string, call: Call, use: (stop: Stop) => Promise<T>): Promise<T> {
    const seconds = call === 'recall' ? this.#recallSeconds : SECONDS
    const own = new AbortController()
    const stopTimer = startTimer(seconds, () => own.abort())
    const why = `${service}: no answer within ${seconds} s`
    try {
      return await bounded(own.signal, why, () => use({ abortSignal: own.signal }))
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
  // The signal of each call bounds its time; the timer of that warning would outlive a failure.
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
