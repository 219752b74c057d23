// The line that each turn leaves in the log: its outcome, its duration and its tokens.

import { log, type TurnReport, type TurnRequest } from './contract.ts'

/** Run a turn that `signal` cancels, and log one line at its end: a warning when it failed. */
export async function logged<T>(
  request: TurnRequest,
  signal: AbortSignal,
  report: TurnReport,
  run: () => Promise<T>,
): Promise<T> {
  const start = performance.now()
  try {
    return await run()
  } catch (error) {
    report.fail(error, signal)
    throw error
  } finally {
    report.milliseconds = Math.round(performance.now() - start)
    const fields = {
      turn: report.turn,
      outcome: report.outcome,
      ms: String(report.milliseconds),
      tokens_in: report.inputTokens,
      tokens_out: report.outputTokens,
      detail: report.detail,
    }
    const texts = Object.entries(fields).flatMap(([name, it]) => (it ? [`${name}=${it}`] : []))
    const level = report.isFailure ? 'WARNING' : 'INFO'
    log(level, `session ${request.sessionId}: ${texts.join(' ')}`)
  }
}
