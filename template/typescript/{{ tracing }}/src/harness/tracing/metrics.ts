// Measures turns, and model calls by the OpenTelemetry conventions for generative AI.

import { type Attributes, metrics } from '@opentelemetry/api'

import type { Turn } from '../contract.ts'

// The boundaries that the conventions recommend, in seconds and in tokens.
const SECONDS = Array.from({ length: 14 }, (_, power) => 0.01 * 2 ** power)
const TOKENS = Array.from({ length: 14 }, (_, power) => 4 ** power)
/** The attributes of a model call to copy to its metrics. */
const ATTRIBUTES = [
  'gen_ai.operation.name',
  'gen_ai.provider.name',
  'gen_ai.request.model',
  'gen_ai.response.model',
]

/** The metrics of this process, without names of people. Create it after setting the provider. */
export class Metrics {
  readonly #meter = metrics.getMeter('app')
  readonly #calls = this.#histogram('gen_ai.client.operation.duration', 's', SECONDS)
  readonly #tokens = this.#histogram('gen_ai.client.token.usage', '{token}', TOKENS)
  readonly #turns = this.#histogram('agent.turn.duration', 's', SECONDS)
  readonly #waits = this.#histogram('agent.turn.wait', 's', SECONDS)
  /** The start times of waiting turns. */
  readonly #waiting = new WeakMap<Turn, number>()
  readonly #open = this.#meter.createUpDownCounter('agent.turns', { unit: '{turn}' })

  /** Record a model call with the attributes of its span. */
  countCall(milliseconds: number, facts: Attributes): void {
    const attributes: Attributes = {}
    for (const name of ATTRIBUTES) if (name in facts) attributes[name] = facts[name]
    for (const kind of ['input', 'output']) {
      const count = Number(facts[`gen_ai.usage.${kind}_tokens`] ?? 0)
      if (count > 0) this.#tokens.record(count, { ...attributes, 'gen_ai.token.type': kind })
    }
    if ('error.type' in facts) attributes['error.type'] = facts['error.type']
    this.#calls.record(milliseconds / 1000, attributes)
  }

  /** Count a turn while it waits or runs, and record its duration and outcome. */
  async ofTurn<T>(turn: Turn, run: () => Promise<T>): Promise<T> {
    const startedAt = performance.now()
    this.#waiting.set(turn, startedAt)
    this.#open.add(1, { 'agent.turn.state': 'waiting' })
    try {
      return await run()
    } finally {
      const state = this.#waiting.has(turn) ? 'waiting' : 'running'
      this.#open.add(-1, { 'agent.turn.state': state })
      const seconds = (performance.now() - startedAt) / 1000
      this.#turns.record(seconds, { 'turn.outcome': turn.outcome })
    }
  }

  /** Record how long a turn waited for earlier turns of its session. */
  begin(turn: Turn): void {
    const startedAt = this.#waiting.get(turn)
    this.#waiting.delete(turn)
    if (startedAt !== undefined) this.#waits.record((performance.now() - startedAt) / 1000)
    this.#open.add(-1, { 'agent.turn.state': 'waiting' })
    this.#open.add(1, { 'agent.turn.state': 'running' })
  }

  #histogram(name: string, unit: string, explicitBucketBoundaries: number[]) {
    return this.#meter.createHistogram(name, { unit, advice: { explicitBucketBoundaries } })
  }
}
