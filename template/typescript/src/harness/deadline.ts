// Time limits that do not count pauses of this process, cancellation, and pauses of long work.

import { AgentError } from './contract.ts'

/** The time limit has passed. */
export class TimeoutError extends Error {}

const ENDED = new DOMException('The turn has ended.', 'AbortError') // shared: stacks take time

/** Run `work`. Throws the error that `late` returns after `seconds`, or the signal's reason. */
export async function withinTime<T>(
  seconds: number,
  signal: AbortSignal,
  work: (stop: AbortSignal) => Promise<T>,
  late: () => Error = () => new AgentError('turn_timeout'),
): Promise<T> {
  signal.throwIfAborted()
  // AbortSignal.any would keep listeners that a tool or provider does not remove.
  const own = new AbortController()
  const forward = () => own.abort(signal.reason)
  signal.addEventListener('abort', forward)
  const stopped = abortOf(own.signal) // before `work`, which may abort at once
  const stopTimer = startTimer(seconds, () => own.abort(late()))
  try {
    return await Promise.race([work(own.signal), stopped])
  } finally {
    stopTimer()
    signal.removeEventListener('abort', forward)
    own.abort(ENDED) // ends the model call
  }
}

const STEPS = 100

/**
 * Call `expire` after `seconds`; return a function that cancels the timer.
 *
 * A blocked event loop or a paused process delays the answers to its requests. The limit consists
 * of consecutive steps: a block uses up a single step, and the event loop reads pending answers in
 * the next steps.
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

const MAX_WORK = 10 // milliseconds without a pause

let workBegan: number | undefined // the start, since the last pause

/** Whether the current work has taken MAX_WORK and must `pause`. */
export function mustPause(): boolean {
  const now = performance.now()
  if (workBegan === undefined) {
    workBegan = now
    setImmediate(() => (workBegan = undefined))
  }
  return now - workBegan > MAX_WORK
}

/** Let the event loop run other work. */
export function pause(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
