// OpenTelemetry traces and metrics: a span for each turn, with its calls below.

import { readFileSync } from 'node:fs'
import type { RequestListener } from 'node:http'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import {
  context,
  createNoopMeter,
  metrics,
  propagation,
  type ProxyTracerProvider,
  trace,
  type TracerProvider,
} from '@opentelemetry/api'

import { Capability, type Options } from '../capability.ts'
import type { Turn } from '../contract.ts'
import { withoutPassword } from '../settings.ts'
import { instrument, scope } from './adapter.ts'
import { endpointOf, setExporters } from './export.ts'
import { adapt } from './framework_spans.ts'
import { currentTrace, nameTraces, rememberTrace } from './log_lines.ts'
import { Metrics } from './metrics.ts'
import { turnSpan } from './spans.ts'

const SIGNALS = ['Traces', 'Metrics']
const CAPTURE = 'OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT'

/** Makes a span for each turn, below the caller's span, and measures turns and model calls. */
export class Tracing extends Capability {
  #flush: (() => Promise<unknown>) | undefined
  #metrics = new Metrics() // measures nothing until `open`

  /** Close last, to send the spans of other capabilities. */
  override get closesLast(): boolean {
    return true
  }

  /**
   * Export spans and metrics to OTEL_EXPORTER_OTLP_ENDPOINT, if it is set.
   *
   * Keeps existing providers, such as those of a distribution loaded with `--require`. Then the
   * framework's spans only get the names of the conventions, and lose prompts and replies.
   */
  override async open(): Promise<void> {
    const proxy = trace.getTracerProvider() as ProxyTracerProvider
    const manifest = join(this.load.folder, '../package.json')
    const { name: agent, version } = JSON.parse(readFileSync(manifest, 'utf8'))
    if (proxy.getDelegateTracer('app') === undefined) {
      if (!SIGNALS.some((signal) => endpointOf(signal.toUpperCase()))) return
      this.#flush = await setExporters(agent, version)
    }
    nameTraces()
    this.#metrics = new Metrics()
    const content = process.env[CAPTURE]?.toLowerCase() ?? ''
    const hasContent = ['true', '1', 'span_only', 'span_and_event'].includes(content)
    const spans: TracerProvider & { forceFlush?(): Promise<void> } = proxy.getDelegate()
    this.#flush ??= async () => spans.forceFlush?.()
    proxy.setDelegate({
      getTracer: (name, ...rest) => {
        const tracer = spans.getTracer(name, ...rest)
        if (name === scope()) adapt(tracer, agent, this.#metrics, hasContent)
        return tracer
      },
    })
    const meters = metrics.getMeterProvider()
    const getMeter = meters.getMeter.bind(meters)
    // The framework's own metrics contain tool names that a model may invent.
    meters.getMeter = (name, ...rest) =>
      name === scope() ? createNoopMeter() : getMeter(name, ...rest)
    await instrument()
  }

  /** Flush the remaining data, within a second. */
  override async close(): Promise<void> {
    await Promise.race([this.#flush?.().catch(() => {}), sleep(1000, undefined, { ref: false })])
  }

  override describe(): string[] {
    return SIGNALS.flatMap((signal) => {
      const endpoint = endpointOf(signal.toUpperCase())
      return endpoint ? [`${signal}: contacts ${withoutPassword(endpoint)}`] : []
    })
  }

  override around(turn: Turn, run: () => Promise<unknown>): Promise<unknown> {
    let id = ''
    const traced = () =>
      turnSpan(turn, () => {
        id = currentTrace()
        return run()
      })
    const running = this.#metrics.ofTurn(turn, traced)
    rememberTrace(id) // the last log line of a turn comes after its span
    return running
  }

  override prepare(turn: Turn, _options: Options): void {
    this.#metrics.begin(turn)
  }

  /** Continue the trace in the caller's `traceparent` header. */
  override wrap(app: RequestListener): RequestListener {
    return (request, response) => {
      const active = context.active()
      // A span means that an instrumentation has already continued the trace.
      const isTraced = trace.getSpan(active) !== undefined
      const caller = isTraced ? active : propagation.extract(active, request.headers)
      return context.with(caller, () => app(request, response))
    }
  }
}
