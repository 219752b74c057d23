// Traces by OpenTelemetry: a span for each turn; below it model calls, tools, store and memory.

import { createHash } from 'node:crypto'
import type { RequestListener } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

import { type Attributes, type Context, context, propagation, type Span } from '@opentelemetry/api'
import { type ProxyTracerProvider, SpanKind, type SpanOptions } from '@opentelemetry/api'
import { SpanStatusCode, trace, type Tracer } from '@opentelemetry/api'

import { AgentError, log, type TurnReport, type TurnRequest } from './contract.ts'
import { withoutPassword } from './settings.ts'

const ENDPOINTS = ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_EXPORTER_OTLP_ENDPOINT']
// What a span of the framework may have without the switch: nothing that quotes what was said.
const SAFE = RegExp(
  '^(gen_ai\\.(operation|provider|agent|request|response|usage)\\..*|gen_ai\\.tool\\.(name|type)' +
    '|gen_ai\\.(tool\\.call\\.id|tool\\.status|system|output\\.type)|http\\..*|error\\.type' +
    '|memory\\..*\\.(count|failure_count|name|names))$',
)

/** The provider of this process, or undefined. */
let flush: (() => Promise<void>) | undefined

/**
 * Export spans to OTEL_EXPORTER_OTLP_ENDPOINT, if it is set, and let the framework make them.
 *
 * A provider that is there already, as of `--import` of a distribution, is used as it is.
 */
export async function openTracing(): Promise<void> {
  if (!isOn()) {
    if (!endpoint()) return
    await setExporter()
  }
  const proxy = trace.getTracerProvider() as ProxyTracerProvider
  const provider = proxy.getDelegate()
  const content = process.env.OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT?.toLowerCase()
  if (!['true', '1', 'span_only', 'span_and_event'].includes(content ?? '')) {
    const scope = 'gen_ai'
    proxy.setDelegate({
      getTracer(name, ...rest) {
        const tracer = provider.getTracer(name, ...rest)
        return name === scope ? withoutContent(tracer) : tracer
      },
    })
  }
  const [{ registerTelemetry }, { OpenTelemetry }] = await Promise.all([
    import('ai'),
    import('@ai-sdk/otel'),
  ])
  registerTelemetry(new OpenTelemetry())
}

/** Return what spans are sent to, without passwords; nothing when they are not exported. */
export function describeTracing(): string[] {
  return endpoint() ? [`Traces: contacts ${withoutPassword(endpoint())}`] : []
}

function endpoint(): string {
  return ENDPOINTS.map((name) => process.env[name]).find(Boolean) ?? ''
}

function isOn(): boolean {
  return (trace.getTracerProvider() as ProxyTracerProvider).getDelegateTracer('app') !== undefined
}

/** Set a provider that exports spans; one warning says that they cannot be sent. */
async function setExporter(): Promise<void> {
  const { OTLPTraceExporter } = await import('@opentelemetry/exporter-trace-otlp-proto')
  const { detectResources, envDetector, resourceFromAttributes } =
    await import('@opentelemetry/resources')
  const { BatchSpanProcessor, NodeTracerProvider } = await import('@opentelemetry/sdk-trace-node')
  const exporter = new OTLPTraceExporter()
  const send = exporter.export.bind(exporter)
  let isFailing = false
  exporter.export = (spans, done) =>
    send(spans, (result) => {
      if (result.code !== 0 && !isFailing) {
        log('WARNING', `${describeTracing()}, which takes no spans; turns continue`)
      }
      isFailing = result.code !== 0
      done(result)
    })
  const named = resourceFromAttributes({ 'service.name': 'my-agent' })
  const resource = named.merge(detectResources({ detectors: [envDetector] }))
  const spanProcessors = [new BatchSpanProcessor(exporter)]
  const provider = new NodeTracerProvider({ resource, spanProcessors })
  provider.register()
  flush = () => provider.forceFlush()
}

/** Send what is left, within a second. */
export async function closeTracing(): Promise<void> {
  await Promise.race([flush?.().catch(() => {}), sleep(1000)])
}

/** Continue the trace of the caller, as its header `traceparent` says. */
export function withCaller(listener: RequestListener): RequestListener {
  if (!isOn()) return listener
  return (request, response) => {
    const active = context.active()
    const isTraced = trace.getSpan(active) !== undefined // by an instrumentation
    const caller = isTraced ? active : propagation.extract(active, request.headers)
    context.with(caller, () => listener(request, response))
  }
}

/** Make the span of a turn that `signal` cancels; what the turn calls is below it. */
export async function turnSpan<T>(
  request: TurnRequest,
  signal: AbortSignal,
  report: TurnReport,
  run: () => Promise<T>,
): Promise<T> {
  const kind = trace.getActiveSpan()?.isRecording() ? SpanKind.INTERNAL : SpanKind.SERVER
  return inSpan('turn', kind, async (span) => {
    try {
      return await run()
    } catch (error) {
      report.fail(error, signal)
      throw error
    } finally {
      const { sessionId, actor } = request
      span.setAttributes({ 'session.id': sessionId, 'gen_ai.conversation.id': sessionId })
      const isHashed = actor && span.isRecording()
      const digest = isHashed && createHash('sha256').update(actor).digest('hex')
      if (digest) span.setAttribute('enduser.pseudo.id', digest)
      span.setAttributes({ 'turn.number': report.turn, 'turn.outcome': report.outcome })
    }
  })
}

async function inSpan<T>(
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

/** Keep prompts, replies and the texts of errors out of the spans of a tracer. */
function withoutContent(tracer: Tracer): Tracer {
  const startSpan = tracer.startSpan.bind(tracer)
  tracer.startSpan = (name: string, options: SpanOptions = {}, parent?: Context) => {
    const attributes = safe(options.attributes ?? {})
    const span = startSpan(name, { ...options, attributes }, parent)
    const [setAttribute, setStatus] = [span.setAttribute.bind(span), span.setStatus.bind(span)]
    const setAttributes = (attributes: Attributes) => {
      for (const [key, value] of Object.entries(safe(attributes))) setAttribute(key, value!)
      return span
    }
    return Object.assign(span, {
      setAttributes,
      setAttribute: (key: string, value: Attributes[string]) => setAttributes({ [key]: value }),
      setStatus: ({ code }: { code: SpanStatusCode }) => setStatus({ code }),
      addEvent: () => span,
      recordException: () => {},
    })
  }
  function safe(attributes: Attributes): Attributes {
    const kept = Object.fromEntries(Object.entries(attributes).filter(([key]) => SAFE.test(key)))
    return kept
  }
  return tracer
}
