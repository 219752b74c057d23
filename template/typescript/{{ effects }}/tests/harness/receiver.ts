// The receiver of payments, e-mails and tickets.

import type { Effect } from '../../src/harness/effects/index.ts'

/** Counts calls, and throws the errors that its next calls get. */
export class Receiver {
  /** The tool and the key of each call. */
  readonly calls: [tool: string, key: string][] = []
  readonly errors: unknown[] = []
  /** Results by key, for `reconcile`. */
  readonly results = new Map<string, string>()
  hasReconcile = true
  /** The end of each result. */
  ending = ''
  /** Calls wait for this promise. */
  gate: Promise<unknown> = Promise.resolve()
  /** The number of calls that have begun. */
  begun = 0

  readonly get = async (tool: string, { key }: Effect): Promise<string> => {
    this.begun++
    await this.gate
    this.calls.push([tool, key])
    if (this.errors.length > 0) throw this.errors.shift()
    const result = `${tool} ${this.calls.length}${this.ending}`
    this.results.set(key, result)
    return result
  }

  readonly reconcile = async (key: string): Promise<string | null> => {
    if (!this.hasReconcile) throw new Error('the receiver is down')
    return this.results.get(key) ?? null
  }

  count(tool: string): number {
    return this.calls.filter(([name]) => name === tool).length
  }
}
