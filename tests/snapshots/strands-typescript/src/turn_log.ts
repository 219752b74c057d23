// The line that each turn leaves in the log: its outcome, its duration and its tokens.

import { AgentError, log, type TurnRequest } from './contract.ts'

/** What a turn says about itself, also when it fails; 0 is unknown. */
export class TurnReport {
  turn = 0
  /** Or replayed, cancelled, internal_error, or a type in ERRORS. */
  outcome = 'committed'
  inputTokens = 0
  outputTokens = 0
}

/** Run a turn that `signal` cancels, and log one line at its end: a warning when it failed. */
export async function logged<T>(
  request: TurnRequest,
  signal: AbortSignal,
  run: (report: TurnReport) => Promise<T>,
): Promise<T> {
  const [report, start] = [new TurnReport(), performance.now()]
  let detail = ''
  try {
    return await run(report)
  } catch (error) {
    report.outcome = outcomeOf(error, signal)
    detail = error instanceof AgentError ? error.detail : ''
    throw error
  } finally {
    const fields = {
      turn: report.turn,
      outcome: report.outcome,
      ms: (performance.now() - start).toFixed(),
      tokens_in: report.inputTokens,
      tokens_out: report.outputTokens,
      detail,
    }
    const isFailure = !['committed', 'replayed', 'cancelled'].includes(report.outcome)
    const texts = Object.entries(fields).flatMap(([name, it]) => (it ? [`${name}=${it}`] : []))
    log(isFailure ? 'WARNING' : 'INFO', `session ${request.sessionId}: ${texts.join(' ')}`)
  }
}

/** Name how an error ends a turn that `signal` cancels. */
function outcomeOf(error: unknown, signal: AbortSignal): string {
  if (signal.aborted) return 'cancelled'
  return error instanceof AgentError ? error.type : 'internal_error'
}
