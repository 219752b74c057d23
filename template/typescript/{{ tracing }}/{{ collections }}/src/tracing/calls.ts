// Spans of the calls of a store or a memory.

import { SpanKind } from '@opentelemetry/api'

import { inSpan } from './spans.ts'

/** Return an object like this one, of which each call of these methods makes a span. */
export function traceCalls<T extends object>(object: T, name: string, methods: string[]): T {
  return new Proxy(object, {
    get(_, key) {
      const value = Reflect.get(object, key)
      if (typeof value !== 'function') return value
      const method = String(key)
      if (!methods.includes(method)) return value.bind(object)
      const snake = method.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
      return (...args: unknown[]) =>
        inSpan(`${name}.${snake}`, SpanKind.CLIENT, () => value.apply(object, args))
    },
  })
}
