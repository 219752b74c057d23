// Appends the trace id of a turn to its log lines.

import { AsyncLocalStorage } from 'node:async_hooks'

import { context, isSpanContextValid, ROOT_CONTEXT, trace } from '@opentelemetry/api'

import { logging } from '../log.ts'

const ofTurn = new AsyncLocalStorage<string>()

/** Append the current trace id to each log line. */
export function nameTraces(): void {
  logging.labels = () => {
    const trace = currentTrace()
    return trace ? { trace } : {}
  }
}

/** Return the id of the current trace, or ''. */
export function currentTrace(): string {
  const span = trace.getSpanContext(context.active())
  return span && isSpanContextValid(span) ? span.traceId : (ofTurn.getStore() ?? '')
}

/** Run work outside any turn, such as a timer that a turn started. */
export function outsideTurns(work: () => void): void {
  context.with(ROOT_CONTEXT, () => ofTurn.run('', work))
}

/** Keep the trace of a span for later log lines. */
export function rememberTrace(id: string): void {
  ofTurn.enterWith(id)
}
