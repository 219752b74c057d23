// The end of a turn that takes too long, or is cancelled; and pauses, in which others go on.

import { AgentError } from './contract.ts'

/** Work took longer than it may. */
export class TimeoutError extends Error {}

const OVER = new DOMException('It is over.', 'AbortError') // one for all: its stack takes time

/** Run `work`; throw what `late` returns when its seconds are over, or the signal's reason. */
export async function withinTime<T>(
  seconds: number,
  signal: AbortSignal,
  work: (stop: AbortSignal) => Promise<T>,
  late: () => Error = () => new AgentError('turn_timeout'),
): Promise<T> {
  signal.throwIfAborted()
  // AbortSignal.any would keep every listener that a tool or a provider does not remove.
  const own = new AbortController()
  const forward = () => own.abort(signal.reason)
  signal.addEventListener('abort', forward)
  const stopped = abortOf(own.signal) // before the work, which may abort it at once
  const stopTimer = startTimer(seconds, () => own.abort(late()))
  try {
    return await Promise.race([work(own.signal), stopped])
  } finally {
    stopTimer()
    signal.removeEventListener('abort', forward)
    own.abort(OVER) // ends the model call, whatever ended the turn
  }
}

const STEPS = 100

/**
 * Call `expire` after `seconds`, and return a function that prevents this.
 *
 * A blocked event loop, or a process without CPU, delays the answers that it waits for. So the time
 * consists of steps, of which each begins after the last has ended: a block uses up a single step,
 * and in every step the event loop reads the answers that have arrived.
 */
export function startTimer(seconds: number, expire: () => void): () => void {
  let steps = STEPS
  const step = (seconds * 1000) / STEPS
  const timer = setInterval(() => {
    steps--
    if (steps > 0) return
    clearInterval(timer)
    expire()
  }, step)
  return () => clearInterval(timer)
}

/** Return a promise that rejects when the signal is aborted. */
export function abortOf(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true })
  })
}

const MAX_WORK = 10 // milliseconds

let workBegan: number | undefined // since the event loop last answered others

/** Whether this process has worked for so long that it must `pause`. */
export function mustPause(): boolean {
  const now = performance.now()
  if (workBegan === undefined) {
    workBegan = now
    setImmediate(() => (workBegan = undefined))
  }
  return now - workBegan > MAX_WORK
}

/** Let the event loop answer others. */
export function pause(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
