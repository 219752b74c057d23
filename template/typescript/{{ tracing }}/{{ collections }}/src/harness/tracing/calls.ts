// A span for each call of the session store and of long-term memory.

import { metrics, type SpanContext, SpanKind, trace } from '@opentelemetry/api'

import { Capability } from '../capability.ts'
import type { Turn } from '../contract.ts'
import type { Modules } from '../modules.ts'
import type { CoreSettings } from '../settings.ts'
import { inSpan } from './spans.ts'

/** The spans of turns, by the start times of the turns. */
type Turns = WeakMap<Date, SpanContext>

/** Long-term memory that measures its calls. */
interface Recording {
  readonly recorder: { readonly waiting: ReadonlyMap<string, number> }
  readonly turns: WeakMap<Turn, { readonly startedAt: Date }>
}

const CALLS: Record<string, string[]> = {
  session_store: ['load', 'save', 'end'],
  memory: ['retrieve', 'createEvent'],
}

/** Decorates the store and the memories of earlier capabilities. */
export class TracedCalls extends Capability {
  readonly #turns: Turns = new WeakMap()
  readonly #memories: Recording[] = []

  constructor(settings: CoreSettings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    for (const capability of before) {
      if (!('tracedAs' in capability)) continue
      const name = String(capability.tracedAs)
      if (name === 'memory') this.#memories.push(capability as unknown as Recording)
      Object.assign(capability, { decorate: (target: object) => traced(target, name, this.#turns) })
    }
  }

  /** Measure how many turns wait to be recorded. */
  override async open(): Promise<void> {
    const meter = metrics.getMeter('app')
    const gauge = meter.createObservableGauge('agent.memory.waiting', { unit: '{turn}' })
    gauge.addCallback((result) => {
      for (const { recorder } of this.#memories) {
        for (const [name, turns] of recorder.waiting) {
          result.observe(turns, { 'agent.memory.store': name })
        }
      }
    })
  }

  override committed(turn: Turn): void {
    const span = trace.getActiveSpan()
    for (const { turns } of this.#memories) {
      const memoryTurn = turns.get(turn)
      if (memoryTurn && span) this.#turns.set(memoryTurn.startedAt, span.spanContext())
    }
  }
}

/** Return an object that forwards all calls, and makes a span for the calls in CALLS. */
function traced(target: object, name: string, turns: Turns): object {
  return new Proxy(target, {
    get(_, key) {
      const value = Reflect.get(target, key)
      if (typeof value !== 'function') return value
      const method = String(key)
      if (!CALLS[name]?.includes(method)) return value.bind(target)
      const snake = method.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
      return (...args: unknown[]) => {
        // Recording has its own trace, which links to the traces of its turns.
        const startTimes: Date[] = args.flatMap((event) => Object(event).startTimes ?? [])
        const contexts = startTimes.flatMap((time) => turns.get(time) ?? [])
        const links = contexts.map((context) => ({ context }))
        const call = () => value.apply(target, args)
        return inSpan(`${name}.${snake}`, SpanKind.CLIENT, call, links)
      }
    },
  })
}
