// The trace of a turn at the end of each of its log lines.

import { AsyncLocalStorage } from 'node:async_hooks'

import { context, isSpanContextValid, ROOT_CONTEXT, trace } from '@opentelemetry/api'

import { logging } from '../log.ts'

const ofTurn = new AsyncLocalStorage<string>()

/** Let each line of the log end in the trace that it belongs to. */
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

/** Do something that belongs to no turn, such as what a timer does that one has set. */
export function outsideTurns(work: () => void): void {
  context.with(ROOT_CONTEXT, () => ofTurn.run('', work))
}

/** Let the lines that follow a span name its trace, too. */
export function rememberTrace(id: string): void {
  ofTurn.enterWith(id)
}
