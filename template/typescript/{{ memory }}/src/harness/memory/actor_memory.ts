// Long-term memory of an actor outside turns, for routes, jobs and capabilities.

import type { Capability } from '../capability.ts'
import { ACTOR_ID } from '../contract.ts'
import { describeFailure, isFor, type MemoryCollection } from './base.ts'
import type { AddOptions, Failures, FindOptions, Found } from './hits.ts'
import { LongTermMemory } from './long_term.ts'
import type { MemoryTurn } from './recall.ts'
import { eventsOf, toRecord } from './record.ts'

const SESSION = 'outside-turns' // the session id of added texts

/** Some stores did not add the text; `failures` maps their names to the reasons. */
export class NotAdded extends Error {
  readonly failures: Readonly<Failures>

  constructor(failures: Failures) {
    const parts = Object.entries(failures).map(([name, reason]) => `${name}: ${reason}`)
    super(parts.join('; '))
    this.failures = failures
  }
}

/** The long-term memory of one actor: the collections and the owner's stores. */
export class ActorMemory {
  readonly #longTerm: LongTermMemory
  readonly #turn: MemoryTurn

  constructor(longTerm: LongTermMemory, actor: string) {
    if (!ACTOR_ID.test(actor) || actor.includes('/')) {
      throw new RangeError('The actor id is invalid or contains a /.')
    }
    this.#longTerm = longTerm
    this.#turn = longTerm.turnOf(actor, SESSION, { kept: {}, recalled: [] })
  }

  /** Return memories as `search` does in a turn. Throws RangeError. */
  async search(query: string, options: FindOptions = {}): Promise<Found> {
    return await this.#turn.find(query, options)
  }

  /**
   * Send text to the stores now, and wait for them.
   *
   * Throws as `add` does in a turn. Throws NotAdded if some stores failed: retry only these
   * stores, because the others would store the text twice.
   */
  async add(text: string, options: AddOptions = {}): Promise<void> {
    this.#turn.add(text, options)
    const { identity, stores } = this.#turn
    const added = this.#turn.added.pop()!
    const texts = toRecord(identity, [added], this.#turn.policy)
    const failures: Failures = {}
    const attempt = async (name: string, send: () => Promise<unknown>) => {
      try {
        await send()
      } catch (error) {
        failures[name] = describeFailure(error) // the other stores continue
      }
    }
    const record = async (writer: MemoryCollection) => {
      for (const event of eventsOf(identity, texts, [new Date()], writer)) {
        await writer.memory.createEvent(event)
      }
    }
    const writers = this.#longTerm.writers.filter(({ id }) => isFor(added, id))
    const targets = stores.filter(({ name, takesTexts }) => takesTexts && isFor(added, name))
    await Promise.all([
      ...writers.map((writer) => attempt(writer.id, () => record(writer))),
      ...targets.map((store) => attempt(store.name, () => store.send(text, added[2] ?? {}))),
    ])
    if (Object.keys(failures).length > 0) throw new NotAdded(failures)
  }
}

/**
 * Return the memory of an actor. In a route, `capabilities` are those of its Runtime.
 *
 * Throws RangeError for an invalid actor id.
 */
export function ofActor(capabilities: readonly Capability[], actor: string): ActorMemory {
  const longTerm = capabilities.find((capability) => capability instanceof LongTermMemory)
  if (!longTerm) throw new Error('This agent has no long-term memory.')
  return new ActorMemory(longTerm, actor)
}
