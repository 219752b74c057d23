// Adapts the framework's spans: names as in the conventions, without prompts and replies.

import type { Attributes, Context, Span, SpanOptions, Tracer } from '@opentelemetry/api'

import { AgentError, RUNNING } from '../contract.ts'
import { FILE, ToolNames } from './adapter.ts'
import type { Metrics } from './metrics.ts'
import { classOf } from './spans.ts'

// The attributes of framework spans to keep: none of them quotes prompts or replies.
const SAFE = RegExp(
  '^(gen_ai\\.(operation|provider|agent|request|response|usage)\\..*|gen_ai\\.tool\\.(name|type)' +
    '|gen_ai\\.(tool\\.call\\.id|tool\\.status|system|output\\.type)|http\\..*|error\\.type' +
    '|memory\\..*\\.(count|failure_count|name|names))$',
)
// The base64 of other files: of a known type, or long.
const BASE64 = RegExp(
  '()((?:iVBORw0KGgo|/9j/|R0lGOD|UklGR|JVBERi0|UEsDB)[A-Za-z0-9+/_-]*=*' +
    '|[A-Za-z0-9+/_-]{1000,}=*)',
  'g',
)
const OPERATION = 'gen_ai.operation.name'
const REASONS = 'gen_ai.response.finish_reasons'
const ADAPTED = new WeakSet<Tracer>()

/**
 * Make a framework tracer follow the conventions, and measure model calls.
 *
 * Unless `hasContent`, its spans omit prompts, replies and error messages. They never contain the
 * bytes of files.
 */
export function adapt(tracer: Tracer, agent: string, metrics: Metrics, hasContent: boolean): void {
  if (ADAPTED.has(tracer)) return // a provider may return the same tracer again
  ADAPTED.add(tracer)
  const startSpan = tracer.startSpan.bind(tracer)
  const names = new ToolNames()
  tracer.startSpan = (name: string, options: SpanOptions = {}, parent?: Context) => {
    const startedAt = performance.now()
    const facts: Attributes = {}
    const read = (values: Attributes) => {
      return safeAttributes(names.mask(values), agent, facts, hasContent)
    }
    const attributes = read(options.attributes ?? {})
    const span = startSpan(names.ofSpan(name), { ...options, attributes }, parent)
    const setAttribute = span.setAttribute.bind(span)
    const setStatus = span.setStatus.bind(span)
    const addEvent = span.addEvent.bind(span)
    const recordException = span.recordException.bind(span)
    const end = span.end.bind(span)
    const setAttributes = (values: Attributes) => {
      for (const [key, value] of Object.entries(read(values))) setAttribute(key, value!)
      return rename(span, agent, facts)
    }
    const overrides: Partial<Span> = {
      setAttributes,
      setAttribute: (key, value) => setAttributes({ [key]: value }),
      setStatus: ({ code, message }) => {
        if (hasLeft()) return span
        return setStatus(hasContent && message !== undefined ? { code, message } : { code })
      },
      addEvent: (name, values, time) => {
        if (!hasContent) return span
        const isTime = typeof values !== 'object' || values instanceof Date || Array.isArray(values)
        return addEvent(name, isTime ? values : withoutFiles(values as Attributes), time)
      },
      recordException: (error, time) => {
        if (hasLeft()) return
        setAttributes({ 'error.type': classOf(error) })
        if (hasContent) recordException(error, time)
      },
      end: (time) => {
        if (facts[OPERATION] === 'chat') metrics.countCall(performance.now() - startedAt, facts)
        end(time)
      },
    }
    return rename(Object.assign(span, overrides), agent, facts)
  }
}

/** Whether the caller of the running turn has left, so that aborted calls are no errors. */
function hasLeft(): boolean {
  const { aborted, reason } = RUNNING.getStore()?.signal ?? {}
  return aborted === true && !(reason instanceof AgentError)
}

/** Return the attributes that a span may have, and add them to `facts`. */
function safeAttributes(
  values: Attributes,
  agent: string,
  facts: Attributes,
  hasContent: boolean,
): Attributes {
  const attributes = hasContent ? withoutFiles(values) : { ...values }
  const operation = attributes[OPERATION] ?? facts[OPERATION]
  if (operation === 'invoke_agent') attributes['gen_ai.agent.name'] = agent
  const { 'gen_ai.output.messages': output } = attributes
  if (output && !facts[REASONS]) {
    const messages: { finish_reason?: string }[] = JSON.parse(String(output))
    const reasons = messages.flatMap(({ finish_reason: reason }) => reason ?? [])
    if (reasons.length > 0) attributes[REASONS] = reasons
  }
  const safe = Object.entries(attributes).filter(([key]) => hasContent || SAFE.test(key))
  return Object.assign(facts, Object.fromEntries(safe)) && Object.fromEntries(safe)
}

/** Return attributes with the sizes of files instead of their base64. */
function withoutFiles(attributes: Attributes): Attributes {
  const entries = Object.entries(attributes).map(([key, value]) => {
    if (typeof value !== 'string') return [key, value]
    return [key, value.replace(FILE, sizeOf).replace(BASE64, sizeOf)]
  })
  return Object.fromEntries(entries)
}

function sizeOf(_: string, before: string, base64: string): string {
  return `${before}[${Math.floor((base64.replace(/=+$/, '').length * 3) / 4)} bytes]`
}

/** Name a span according to the conventions. */
function rename(span: Span, agent: string, facts: Attributes): Span {
  const operation = facts[OPERATION]
  const { 'gen_ai.request.model': model } = facts
  if (operation === 'invoke_agent') span.updateName(`${operation} ${agent}`)
  if (operation === 'chat' && model) span.updateName(`${operation} ${String(model)}`)
  return span
}
