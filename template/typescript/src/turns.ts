// The turns that run in this process: how many may, and how they end at a shutdown.

import { setTimeout as sleep } from 'node:timers/promises'

import { AgentError } from './contract.ts'

/** The turns that run or wait in this process, and the reads of bodies and sessions. */
export class Turns {
  readonly tasks = new Map<Promise<unknown>, AbortController>()
  changedAt = now()
  isDraining = false
  #reads = 0

  /** Throw AgentError when no turn may start: `draining` or `server_busy`. */
  checkRoom(maxTurns: number): void {
    if (this.isDraining) throw new AgentError('draining')
    if (this.tasks.size + this.#reads >= maxTurns) throw new AgentError('server_busy')
  }

  /** Take the place of a turn while a body or a session is read, or throw AgentError. */
  async reading<T>(maxTurns: number, read: () => Promise<T>): Promise<T> {
    this.checkRoom(maxTurns)
    this.#reads++
    return read().finally(() => this.#reads--)
  }

  /** Register a started turn, which `stop` cancels. */
  start<T>(work: Promise<T>, stop: AbortController): Promise<T> {
    const task = work.finally(() => {
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
