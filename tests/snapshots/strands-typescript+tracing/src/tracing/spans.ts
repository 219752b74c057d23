// A span around some work.

import { type Span, type SpanKind, SpanStatusCode, trace } from '@opentelemetry/api'

import { AgentError } from '../contract.ts'

/** Run some work in a span, which gets the type of an error. */
export async function inSpan<T>(
  name: string,
  kind: SpanKind,
  run: (span: Span) => Promise<T>,
): Promise<T> {
  return trace.getTracer('app').startActiveSpan(name, { kind }, async (span) => {
    try {
      return await run(span)
    } catch (error) {
      const { name } = Object(error).constructor
      span.setAttribute('error.type', error instanceof AgentError ? error.type : name)
      span.setStatus({ code: SpanStatusCode.ERROR })
      throw error
    } finally {
      span.end()
    }
  })
}
