// A span for each call of the session store and of long-term memory.

import { SpanKind } from '@opentelemetry/api'

import { Capability } from '../capability.ts'
import type { CoreSettings } from '../settings.ts'
import { inSpan } from './spans.ts'

const CALLS: Record<string, string[]> = {
  session_store: ['load', 'save', 'end'],
  memory: ['retrieve', 'createEvent'],
}

/** Decorates what earlier capabilities call. */
export class TracedCalls extends Capability {
  constructor(settings: CoreSettings, before: readonly Capability[]) {
    super(settings, before)
    for (const capability of before) {
      if (!('tracedAs' in capability)) continue
      const name = String(capability.tracedAs)
      Object.assign(capability, { decorate: (target: object) => traced(target, name) })
    }
  }
}

/** Return an object that passes on all calls to the target, and makes a span of those in CALLS. */
function traced(target: object, name: string): object {
  return new Proxy(target, {
    get(_, key) {
      const value = Reflect.get(target, key)
      if (typeof value !== 'function') return value
      const method = String(key)
      if (!CALLS[name]?.includes(method)) return value.bind(target)
      const snake = method.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
      return (...args: unknown[]) =>
        inSpan(`${name}.${snake}`, SpanKind.CLIENT, () => value.apply(target, args))
    },
  })
}
