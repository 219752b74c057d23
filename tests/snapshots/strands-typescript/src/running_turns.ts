// The turns that run in this process: how many may, and how they end at a shutdown.

import { setTimeout as sleep } from 'node:timers/promises'

import { AgentError } from './contract.ts'

/** The turns that run or wait in this process, and the reads of bodies and sessions. */
export class Turns {
  readonly tasks = new Map<Promise<unknown>, AbortController>()
  changedAt = now()
  isDraining = false
  readonly #maxTurns: number
  #reads = 0

  constructor(maxTurns: number) {
    this.#maxTurns = maxTurns
  }

  #checkRoom(): void {
    if (this.isDraining) throw new AgentError('draining')
    if (this.tasks.size + this.#reads >= this.#maxTurns) throw new AgentError('server_busy')
  }

  /** Take the place of a turn while a body or a session is read. Throws like `start`. */
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
    const task = work().finally(() => {
      this.tasks.delete(task)
      this.changedAt = now()
    })
    this.tasks.set(task, stop)
    this.changedAt = now()
    return task
  }

  /** Refuse new turns, let running ones finish within this time, then cancel them. */
  async drain(graceSeconds: number): Promise<void> {
    this.isDraining = true
    while (this.tasks.size > 0) {
      const grace = sleep(graceSeconds * 1000, null, { ref: false })
      await Promise.race([Promise.allSettled(this.tasks.keys()), grace])
      for (const stop of this.tasks.values()) stop.abort(new AgentError('draining'))
    }
  }
}

function now(): number {
  return Math.floor(Date.now() / 1000)
}
