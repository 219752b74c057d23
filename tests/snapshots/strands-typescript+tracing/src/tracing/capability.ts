// Traces by OpenTelemetry: a span for each turn; below it model calls, tools, store and memory.

import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { RequestListener } from 'node:http'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { type Attributes, type Context, context, propagation } from '@opentelemetry/api'
import { type ProxyTracerProvider, SpanKind, type SpanOptions } from '@opentelemetry/api'
import { type SpanStatusCode, trace, type Tracer } from '@opentelemetry/api'

import { Capability } from '../capability.ts'
import type { Turn } from '../contract.ts'
import { log } from '../log.ts'
import { withoutPassword } from '../settings.ts'
import { instrument, scope, ToolNames } from './adapter.ts'
import { inSpan } from './spans.ts'

const MANIFEST = join(import.meta.dirname, '../../package.json')
const ENDPOINTS = ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_EXPORTER_OTLP_ENDPOINT']
const CAPTURE = 'OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT'
// What a span of the framework may have without the switch: nothing that quotes prompts or replies.
const SAFE = RegExp(
  '^(gen_ai\\.(operation|provider|agent|request|response|usage)\\..*|gen_ai\\.tool\\.(name|type)' +
    '|gen_ai\\.(tool\\.call\\.id|tool\\.status|system|output\\.type)|http\\..*|error\\.type' +
    '|memory\\..*\\.(count|failure_count|name|names))$',
)

/** Makes a span for each turn, below that of the caller. */
export class Tracing extends Capability {
  #flush: (() => Promise<void>) | undefined

  /**
   * Export spans to OTEL_EXPORTER_OTLP_ENDPOINT, if it is set, and let the framework make them.
   *
   * A provider that is there already, as of `--import` of a distribution, is used as it is.
   */
  override async open(): Promise<void> {
    const proxy = trace.getTracerProvider() as ProxyTracerProvider
    if (proxy.getDelegateTracer('app') === undefined) {
      if (!endpoint()) return
      this.#flush = await setExporter()
    }
    const provider = proxy.getDelegate()
    const content = process.env[CAPTURE]?.toLowerCase() ?? ''
    if (!['true', '1', 'span_only', 'span_and_event'].includes(content)) {
      proxy.setDelegate({
        getTracer(name, ...rest) {
          const tracer = provider.getTracer(name, ...rest)
          return name === scope() ? withoutContent(tracer) : tracer
        },
      })
    }
    await instrument()
  }

  /** Send what is left, within a second. */
  override async close(): Promise<void> {
    await Promise.race([this.#flush?.().catch(() => {}), sleep(1000, undefined, { ref: false })])
  }

  override describe(): string[] {
    return endpoint() ? [contact()] : []
  }

  /** Make the span of a turn; the calls of the turn are below it. */
  override around<T>(turn: Turn, run: () => Promise<T>): Promise<T> {
    const isBelow = trace.getSpan(context.active())?.isRecording()
    return inSpan('turn', isBelow ? SpanKind.INTERNAL : SpanKind.SERVER, async (span) => {
      const { sessionId, actor } = turn
      return run().finally(() => {
        span.setAttributes({ 'session.id': sessionId, 'gen_ai.conversation.id': sessionId })
        const isHashed = actor && span.isRecording()
        const digest = isHashed && createHash('sha256').update(actor).digest('hex')
        if (digest) span.setAttribute('enduser.pseudo.id', digest)
        span.setAttributes({ 'turn.number': turn.number, 'turn.outcome': turn.outcome })
      })
    })
  }

  /** Continue the traces of callers, as their header `traceparent` says. */
  override wrap(app: RequestListener): RequestListener {
    return (request, response) => {
      const active = context.active()
      const isTraced = trace.getSpan(active) !== undefined // by an instrumentation
      const caller = isTraced ? active : propagation.extract(active, request.headers)
      context.with(caller, () => app(request, response))
    }
  }
}

function endpoint(): string {
  return ENDPOINTS.map((name) => process.env[name]).find(Boolean) ?? ''
}

function contact(): string {
  return `Traces: contacts ${withoutPassword(endpoint())}`
}

/** Set a provider that exports spans, and return what flushes them; a failure is one warning. */
async function setExporter(): Promise<() => Promise<void>> {
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
        log('WARNING', `${contact()} is not accepting spans; turns continue`)
      }
      isFailing = result.code !== 0
      done(result)
    })
  const { name } = JSON.parse(readFileSync(MANIFEST, 'utf8'))
  const named = resourceFromAttributes({ 'service.name': name })
  const resource = named.merge(detectResources({ detectors: [envDetector] }))
  const spanProcessors = [new BatchSpanProcessor(exporter)]
  const provider = new NodeTracerProvider({ resource, spanProcessors })
  provider.register()
  return () => provider.forceFlush()
}

/** Keep prompts, replies and the texts of errors out of the spans of a tracer. */
function withoutContent(tracer: Tracer): Tracer {
  const startSpan = tracer.startSpan.bind(tracer)
  const names = new ToolNames()
  tracer.startSpan = (name: string, options: SpanOptions = {}, parent?: Context) => {
    const attributes = safe(options.attributes ?? {})
    const span = startSpan(names.ofSpan(name), { ...options, attributes }, parent)
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
    return names.mask(kept)
  }
  return tracer
}
