// Measures model calls, as the conventions of OpenTelemetry for generative AI say, and turns.

import { type Attributes, metrics } from '@opentelemetry/api'

import type { Turn } from '../contract.ts'

// The boundaries that the conventions recommend, in seconds and in tokens.
const SECONDS = Array.from({ length: 14 }, (_, power) => 0.01 * 2 ** power)
const TOKENS = Array.from({ length: 14 }, (_, power) => 4 ** power)
/** The attributes of a model call that its metrics have. */
const KEPT = [
  'gen_ai.operation.name',
  'gen_ai.provider.name',
  'gen_ai.request.model',
  'gen_ai.response.model',
]

/** The metrics of this process; make it when the provider is set. They name nobody. */
export class Metrics {
  readonly #meter = metrics.getMeter('app')
  readonly #calls = this.#histogram('gen_ai.client.operation.duration', 's', SECONDS)
  readonly #tokens = this.#histogram('gen_ai.client.token.usage', '{token}', TOKENS)
  readonly #turns = this.#histogram('agent.turn.duration', 's', SECONDS)
  readonly #waits = this.#histogram('agent.turn.wait', 's', SECONDS)
  /** When each waiting turn began. */
  readonly #waiting = new WeakMap<Turn, number>()
  readonly #open = this.#meter.createUpDownCounter('agent.turns', { unit: '{turn}' })

  /** Count a call of the model, by the attributes of its span. */
  countCall(milliseconds: number, facts: Attributes): void {
    const attributes: Attributes = {}
    for (const name of KEPT) if (name in facts) attributes[name] = facts[name]
    for (const kind of ['input', 'output']) {
      const count = Number(facts[`gen_ai.usage.${kind}_tokens`] ?? 0)
      if (count > 0) this.#tokens.record(count, { ...attributes, 'gen_ai.token.type': kind })
    }
    if ('error.type' in facts) attributes['error.type'] = facts['error.type']
    this.#calls.record(milliseconds / 1000, attributes)
  }

  /** Count a turn: while it waits or runs, and with its outcome when it ends. */
  async ofTurn<T>(turn: Turn, run: () => Promise<T>): Promise<T> {
    const began = performance.now()
    this.#waiting.set(turn, began)
    this.#open.add(1, { 'agent.turn.state': 'waiting' })
    try {
      return await run()
    } finally {
      const state = this.#waiting.has(turn) ? 'waiting' : 'running'
      this.#open.add(-1, { 'agent.turn.state': state })
      const seconds = (performance.now() - began) / 1000
      this.#turns.record(seconds, { 'turn.outcome': turn.outcome })
    }
  }

  /** Count how long a turn waited for the turns of its session before it. */
  begin(turn: Turn): void {
    const began = this.#waiting.get(turn)
    this.#waiting.delete(turn)
    if (began !== undefined) this.#waits.record((performance.now() - began) / 1000)
    this.#open.add(-1, { 'agent.turn.state': 'waiting' })
    this.#open.add(1, { 'agent.turn.state': 'running' })
  }

  #histogram(name: string, unit: string, explicitBucketBoundaries: number[]) {
    return this.#meter.createHistogram(name, { unit, advice: { explicitBucketBoundaries } })
  }
}
