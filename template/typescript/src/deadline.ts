// The time limit of one turn.

import { AgentError } from './contract.ts'

/** Run `work`; throw at once when its seconds are over or the signal is aborted. */
export async function withinTime<T>(
  seconds: number,
  signal: AbortSignal,
  work: (stop: AbortSignal) => Promise<T>,
): Promise<T> {
  const own = new AbortController()
  const stop = AbortSignal.any([signal, own.signal])
  const stopped = new Promise<never>((_, reject) => {
    stop.addEventListener('abort', () => reject(stop.reason), { once: true })
  })
  const timer = setTimeout(() => own.abort(new AgentError('turn_timeout')), seconds * 1000)
  try {
    return await Promise.race([work(stop), stopped])
  } finally {
    clearTimeout(timer)
    own.abort() // ends the model call, whatever ended the turn
  }
}
