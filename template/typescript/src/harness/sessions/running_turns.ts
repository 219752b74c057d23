// The running turns of this process: their limit and their drain.

import { setTimeout as sleep } from 'node:timers/promises'

import { AgentError } from '../contract.ts'

/** The running and queued turns of this process, and the pending reads. */
export class Turns {
  readonly tasks = new Map<Promise<unknown>, AbortController>()
  isDraining = false
  readonly #maxTurns: number
  #reads = 0
  #status = ''
  #since = 0

  constructor(maxTurns: number) {
    this.#maxTurns = maxTurns
  }

  #checkRoom(): void {
    if (this.isDraining) throw new AgentError('draining')
    if (this.tasks.size + this.#reads >= this.#maxTurns) throw new AgentError('server_busy')
  }

  /** Count a read of a body or a session as a turn. Throws the errors of `start`. */
  async reading<T>(read: () => Promise<T>): Promise<T> {
    this.#checkRoom()
    this.#reads++
    return read().finally(() => this.#reads--)
  }

  /**
   * Run a turn, or end a session; `stop` cancels it.
   *
   * Throws AgentError if no turn may start: `draining` or `server_busy`.
   */
  async start<T>(stop: AbortController, work: () => Promise<T>): Promise<T> {
    this.#checkRoom()
    const task = work().finally(() => this.tasks.delete(task))
    this.tasks.set(task, stop)
    return task
  }

  /** Return when the status last changed, in Unix seconds. */
  since(status: string): number {
    if (status !== this.#status) this.#since = Math.floor(Date.now() / 1000)
    this.#status = status
    return this.#since
  }

  /** Reject new turns; cancel running turns after the grace period. */
  async drain(graceSeconds: number): Promise<void> {
    this.isDraining = true
    while (this.tasks.size > 0) {
      const grace = sleep(graceSeconds * 1000, null, { ref: false })
      await Promise.race([Promise.allSettled(this.tasks.keys()), grace])
      for (const stop of this.tasks.values()) stop.abort(new AgentError('draining'))
    }
  }
}
