// Removes prompts and replies from the spans of the framework.

import type { Attributes, Context, SpanOptions, SpanStatusCode, Tracer } from '@opentelemetry/api'

import { ToolNames } from './adapter.ts'

// What a span of the framework may have without the switch: nothing that quotes prompts or replies.
const SAFE = RegExp(
  '^(gen_ai\\.(operation|provider|agent|request|response|usage)\\..*|gen_ai\\.tool\\.(name|type)' +
    '|gen_ai\\.(tool\\.call\\.id|tool\\.status|system|output\\.type)|http\\..*|error\\.type' +
    '|memory\\..*\\.(count|failure_count|name|names))$',
)

/** Keep prompts, replies and the texts of errors out of the spans of a tracer. */
export function withoutContent(tracer: Tracer): Tracer {
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
