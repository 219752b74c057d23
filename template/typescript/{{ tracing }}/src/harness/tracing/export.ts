// Exports spans and metrics to an endpoint for OTLP over HTTP.

import { randomUUID } from 'node:crypto'

import { metrics } from '@opentelemetry/api'

import { log } from '../log.ts'
import { withoutPassword } from '../settings.ts'
import { outsideTurns } from './log_lines.ts'

interface Exporter<T> {
  export(batch: T, done: (result: { code: number }) => void): void
}

/** Return the endpoint of TRACES or METRICS, or ''. */
export function endpointOf(signal: string): string {
  const isDisabled = process.env.OTEL_SDK_DISABLED?.toLowerCase() === 'true'
  if (isDisabled || process.env[`OTEL_${signal}_EXPORTER`] === 'none') return ''
  const names = [`OTEL_EXPORTER_OTLP_${signal}_ENDPOINT`, 'OTEL_EXPORTER_OTLP_ENDPOINT']
  return names.map((name) => process.env[name]).find(Boolean) ?? ''
}

/** Set a provider for each signal with an endpoint; return a function that flushes them. */
export async function setExporters(name: string, version: string): Promise<() => Promise<unknown>> {
  const { defaultResource, detectResources, envDetector, resourceFromAttributes } =
    await import('@opentelemetry/resources')
  const serviceAttributes = { 'service.name': name, 'service.version': version }
  const serviceResource = resourceFromAttributes({
    ...serviceAttributes,
    'service.instance.id': randomUUID(),
  })
  const environment = detectResources({ detectors: [envDetector] })
  const resource = defaultResource().merge(serviceResource).merge(environment)
  const { BatchSpanProcessor, NodeTracerProvider } = await import('@opentelemetry/sdk-trace-node')
  const spanProcessors = []
  if (endpointOf('TRACES')) {
    const { OTLPTraceExporter } = await import('@opentelemetry/exporter-trace-otlp-proto')
    const exporter = warning(new OTLPTraceExporter(), 'Traces', 'spans')
    spanProcessors.push(new BatchSpanProcessor(exporter))
  }
  const spans = new NodeTracerProvider({ resource, spanProcessors })
  spans.register()
  if (!endpointOf('METRICS')) return () => spans.forceFlush()
  const { OTLPMetricExporter } = await import('@opentelemetry/exporter-metrics-otlp-proto')
  const { MeterProvider, PeriodicExportingMetricReader } =
    await import('@opentelemetry/sdk-metrics')
  const exporter = warning(new OTLPMetricExporter(), 'Metrics', 'metrics')
  const readers = [new PeriodicExportingMetricReader({ exporter, ...interval() })]
  const measures = new MeterProvider({ resource, readers })
  metrics.setGlobalMeterProvider(measures)
  return () => Promise.allSettled([spans.forceFlush(), measures.forceFlush()])
}

/** Return the settings of these variables, which the SDK's reader ignores. */
function interval(): { exportIntervalMillis: number; exportTimeoutMillis: number } {
  const every = Number(process.env.OTEL_METRIC_EXPORT_INTERVAL) || 60_000
  const limit = Number(process.env.OTEL_METRIC_EXPORT_TIMEOUT) || 30_000
  return { exportIntervalMillis: every, exportTimeoutMillis: Math.min(limit, every) }
}

/** Make an exporter log a warning whenever it begins to fail. */
function warning<T, E extends Exporter<T>>(exporter: E, signal: string, data: string): E {
  const send = exporter.export.bind(exporter)
  let hasFailed = false
  exporter.export = (batch, done) =>
    send(batch, (result) => {
      const isFailing = result.code !== 0
      if (isFailing && !hasFailed) {
        const endpoint = withoutPassword(endpointOf(signal.toUpperCase()))
        const text = `${signal}: ${endpoint} is not accepting ${data}; turns continue`
        outsideTurns(() => log('WARNING', text))
      }
      hasFailed = isFailing
      done(result)
    })
  return exporter
}
