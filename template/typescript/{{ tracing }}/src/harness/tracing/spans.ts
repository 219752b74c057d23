// Makes spans: one for each turn, and those of the calls below it.

import { createHash } from 'node:crypto'

import { context, type Link, type Span, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api'

import { AgentError, type Turn } from '../contract.ts'

/** Run some work in a span, which gets the type of an error. */
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

/** Return the class of an error; of a copy, such as the AI SDK's tracer gets, its name. */
export function classOf(error: unknown): string {
  if (error instanceof Error) return error.constructor.name
  const { name } = Object(error)
  return typeof name === 'string' ? name : typeof error
}

/** Run a turn in its span. It is of kind SERVER, unless another span contains it. */
export function turnSpan<T>(turn: Turn, run: () => Promise<T>): Promise<T> {
  const hasParent = trace.getSpan(context.active())?.isRecording()
  return inSpan('turn', hasParent ? SpanKind.INTERNAL : SpanKind.SERVER, async (span) => {
    const { sessionId, actor } = turn
    return run().finally(() => {
      span.setAttributes({ 'session.id': sessionId, 'gen_ai.conversation.id': sessionId })
      const isHashed = actor && span.isRecording()
      const digest = isHashed && createHash('sha256').update(actor).digest('hex')
      if (digest) span.setAttribute('enduser.pseudo.id', digest)
      if (turn.number) span.setAttribute('turn.number', turn.number) // known after a read
      span.setAttribute('turn.outcome', turn.outcome)
      span.setAttribute('turn.tokens_cached', turn.usage.cachedTokens)
    })
  })
}
