// Makes a span for each turn, and for its calls.

import { createHash } from 'node:crypto'

import { context, type Link, type Span, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api'

import { AgentError, type Turn } from '../contract.ts'

/** Run work in a span, and record the type of an error. */
export async function inSpan<T>(
  name: string,
  kind: SpanKind,
  run: (span: Span) => Promise<T>,
  links: Link[] = [],
): Promise<T> {
  return trace.getTracer('app').startActiveSpan(name, { kind, links }, async (span) => {
    try {
      return await run(span)
    } catch (error) {
      span.setAttribute('error.type', error instanceof AgentError ? error.type : classOf(error))
      span.setStatus({ code: SpanStatusCode.ERROR })
      throw error
    } finally {
      span.end()
    }
  })
}

/** Return the class of an error, or its name: the AI SDK's tracer receives a copy. */
export function classOf(error: unknown): string {
  if (error instanceof Error) return error.constructor.name
  const { name } = Object(error)
  return typeof name === 'string' ? name : typeof error
}

/** Run a turn in a span of kind SERVER, or of kind INTERNAL inside another span. */
export function turnSpan<T>(turn: Turn, run: () => Promise<T>): Promise<T> {
  const hasParent = trace.getSpan(context.active())?.isRecording()
  return inSpan('turn', hasParent ? SpanKind.INTERNAL : SpanKind.SERVER, async (span) => {
    const { sessionId, actor } = turn
    return run().finally(() => {
      span.setAttributes({ 'session.id': sessionId, 'gen_ai.conversation.id': sessionId })
      const isHashed = actor && span.isRecording()
      const digest = isHashed && createHash('sha256').update(actor).digest('hex')
      if (digest) span.setAttribute('enduser.pseudo.id', digest)
      // Unknown until the session is read.
      if (turn.number) span.setAttribute('turn.number', turn.number)
      if (turn.model) span.setAttribute('gen_ai.response.model', turn.model)
      span.setAttribute('turn.outcome', turn.outcome)
      span.setAttribute('turn.tokens_cached', turn.usage.cachedTokens)
    })
  })
}
