// The line of a turn in the log: its outcome, its duration and its tokens.

import type { Turn } from './contract.ts'
import { log } from './log.ts'

/** Run a turn, and log one line at its end: a warning if it failed. */
export async function logged<T>(turn: Turn, run: () => Promise<T>): Promise<T> {
  const start = performance.now()
  return run().finally(() => {
    turn.milliseconds = Math.round(performance.now() - start)
    const fields = {
      turn: turn.number,
      outcome: turn.outcome,
      ms: String(turn.milliseconds),
      tokens_in: turn.inputTokens,
      tokens_out: turn.outputTokens,
      detail: turn.detail,
    }
    const texts = Object.entries(fields).flatMap(([name, value]) =>
      value ? [`${name}=${value}`] : [],
    )
    log(turn.isFailure ? 'WARNING' : 'INFO', `session ${turn.sessionId}: ${texts.join(' ')}`)
  })
}
