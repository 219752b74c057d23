// Traces by OpenTelemetry: a span for each turn; below it model calls, tools, store and memory.

import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { RequestListener } from 'node:http'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { context, propagation, type ProxyTracerProvider, trace } from '@opentelemetry/api'

import { Capability } from '../capability.ts'
import type { Turn } from '../contract.ts'
import { log } from '../log.ts'
import { withoutPassword } from '../settings.ts'
import { instrument, scope } from './adapter.ts'
import { currentTrace, nameTraces, outsideTurns, rememberTrace } from './log_lines.ts'
import { withoutContent } from './redaction.ts'
import { turnSpan } from './spans.ts'

const MANIFEST = join(import.meta.dirname, '../../package.json')
const ENDPOINTS = ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_EXPORTER_OTLP_ENDPOINT']
const CAPTURE = 'OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT'

/** Makes a span for each turn, below that of the caller. */
export class Tracing extends Capability {
  #flush: (() => Promise<void>) | undefined

  /**
   * Export spans to OTEL_EXPORTER_OTLP_ENDPOINT, if it is set, and let the framework make them.
   *
   * An existing provider, as of `--import` of a distribution, is kept; only prompts and replies are
   * removed from the spans of the framework.
   */
  override async open(): Promise<void> {
    const proxy = trace.getTracerProvider() as ProxyTracerProvider
    if (proxy.getDelegateTracer('app') === undefined) {
      if (!endpoint()) return
      this.#flush = await setExporter()
    }
    nameTraces()
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
    return endpoint() ? [`Traces: contacts ${withoutPassword(endpoint())}`] : []
  }

  override around(turn: Turn, run: () => Promise<unknown>): Promise<unknown> {
    let id = ''
    const running = turnSpan(turn, () => {
      id = currentTrace()
      return run()
    })
    rememberTrace(id) // the last line of a turn comes after its span
    return running
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

/** Set a provider that exports spans, and return what flushes them; a failure is one warning. */
async function setExporter(): Promise<() => Promise<void>> {
  const { OTLPTraceExporter } = await import('@opentelemetry/exporter-trace-otlp-proto')
  const { defaultResource, detectResources, envDetector, resourceFromAttributes } =
    await import('@opentelemetry/resources')
  const { BatchSpanProcessor, NodeTracerProvider } = await import('@opentelemetry/sdk-trace-node')
  const exporter = new OTLPTraceExporter()
  const send = exporter.export.bind(exporter)
  let isFailing = false
  exporter.export = (spans, done) =>
    send(spans, (result) => {
      if (result.code !== 0 && !isFailing) {
        const where = withoutPassword(endpoint())
        const what = `Traces: ${where} is not accepting spans; turns continue`
        outsideTurns(() => log('WARNING', what))
      }
      isFailing = result.code !== 0
      done(result)
    })
  const { name, version } = JSON.parse(readFileSync(MANIFEST, 'utf8'))
  const own = { 'service.name': name, 'service.version': version }
  const named = resourceFromAttributes({ ...own, 'service.instance.id': randomUUID() })
  const given = detectResources({ detectors: [envDetector] })
  const resource = defaultResource().merge(named).merge(given)
  const spanProcessors = [new BatchSpanProcessor(exporter)]
  const provider = new NodeTracerProvider({ resource, spanProcessors })
  provider.register()
  return () => provider.forceFlush()
}
