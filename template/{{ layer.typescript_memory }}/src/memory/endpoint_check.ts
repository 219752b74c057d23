// A conversation with a custom endpoint that finds where it departs from its contract.

import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'

import { v7 as uuid7 } from 'uuid'

import { Conflict, Unavailable } from './backends.ts'
import type { Failure } from './endpoint.ts'
import { LATEST, type Operations } from './operations.ts'
import type { Condition } from './transport.ts'

const WRITERS = 8
const TEXT = 'Grüße, 你好 😀 \\ " \n'.repeat(1000)

/** A conversation with one endpoint, in a session of its own that it deletes. */
export class EndpointCheck {
  readonly found = new Map<Failure, (string | number)[]>()
  readonly #agent: string
  readonly #session = `check-${randomUUID()}`
  #endpoint!: Operations

  constructor(agentId: string) {
    this.#agent = agentId
  }

  /** Note a finding, each id once; names are for the places in its message. */
  say(id: Failure, ...names: (string | number)[]): void {
    if (!this.found.has(id)) this.found.set(id, names)
  }

  /** Check one thing after another. Throws Unavailable when the first is not answered. */
  async run(endpoint: Operations): Promise<void> {
    this.#endpoint = endpoint
    try {
      await this.#empty()
      for (const step of [this.#latest, this.#checkpoints, this.#manifest, this.#end]) {
        await step.call(this).catch((error) => {
          if (error instanceof Conflict) this.say('AML-C19')
          else if (error instanceof Unavailable) this.say('AML-C01', error.message)
          else throw error
        })
      }
    } finally {
      await endpoint.close()
    }
  }

  /** Check that one who sends no credentials is refused. */
  async runAsStranger(endpoint: Operations): Promise<void> {
    try {
      await endpoint.loadSnapshot(this.#session, this.#agent, LATEST)
      this.say('AML-C18')
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error
    } finally {
      await endpoint.close()
    }
  }

  async #empty(): Promise<void> {
    await this.#expect('AML-C02', LATEST, null)
    if (await this.#endpoint.loadManifest(this.#session, this.#agent)) this.say('AML-C03')
    if ((await this.#list(10)).length > 0) this.say('AML-C04')
  }

  async #latest(): Promise<void> {
    await this.#save(LATEST, 1)
    const old = await this.#expect('AML-C05', LATEST, 1)
    const saved = await this.#save(LATEST, 2)
    const etag = await this.#expect('AML-C06', LATEST, 2)
    const other = `${this.#agent}.other`
    const found = await this.#endpoint.loadSnapshot(this.#session, other, LATEST)
    if (found.value !== null) this.say('AML-C07')
    if (!old || !etag) this.say('AML-C20')
    else if (old === etag || (saved !== null && saved !== etag)) this.say('AML-C08')
    else await this.#conditions(old, etag)
  }

  async #conditions(old: string, etag: string): Promise<void> {
    const found = await this.#endpoint.loadSnapshot(this.#session, this.#agent, LATEST, old)
    if (found.status === 304) this.say('AML-C12')
    const writers = Array.from({ length: WRITERS }, (_, at) =>
      this.#isSaved(3 + at, { match: etag }),
    )
    const accepted = (await Promise.all(writers)).filter(Boolean).length
    if (accepted !== 1) this.say('AML-C09', accepted, WRITERS)
    if (await this.#isSaved(20, { match: old })) this.say('AML-C10')
    if (await this.#isSaved(21, { noneMatch: '*' })) this.say('AML-C11')
  }

  async #checkpoints(): Promise<void> {
    const ids = [uuid7(), uuid7(), uuid7()] as const
    await this.#save(LATEST, 30)
    for (const [turn, id] of [...ids, ids[2]].entries()) {
      await this.#save(id, Math.min(turn, 2)) // the last one again, as a retry would
    }
    await this.#expect('AML-C13', ids[1], 1)
    await this.#expect('AML-C14', LATEST, 30)
    const told = [await this.#list(10), await this.#list(2), await this.#list(10, ids[0])]
    if (!isDeepStrictEqual(told, [ids, ids.slice(0, 2), ids.slice(1)])) this.say('AML-C15')
  }

  async #manifest(): Promise<void> {
    const saved = await this.#endpoint.saveManifest(this.#session, this.#agent)
    const found = await this.#endpoint.loadManifest(this.#session, this.#agent)
    if (!isDeepStrictEqual(found, saved)) this.say('AML-C16')
  }

  async #end(): Promise<void> {
    await this.#endpoint.deleteSession(this.#session)
    await this.#endpoint.deleteSession(this.#session) // which is unknown now
    await this.#expect('AML-C17', LATEST, null)
    const manifest = await this.#endpoint.loadManifest(this.#session, this.#agent)
    if (manifest || (await this.#list(10)).length > 0) this.say('AML-C17')
  }

  async #list(limit: number, after: string | null = null): Promise<string[]> {
    return await this.#endpoint.listSnapshotIds(this.#session, this.#agent, limit, after)
  }

  async #save(id: string, turn: number, condition: Condition = {}): Promise<string | null> {
    const kept = snapshot(turn)
    return await this.#endpoint.saveSnapshot(this.#session, this.#agent, id, kept, condition)
  }

  async #isSaved(turn: number, condition: Condition): Promise<boolean> {
    try {
      await this.#save(LATEST, turn, condition)
      return true
    } catch (error) {
      if (error instanceof Conflict) return false
      throw error
    }
  }

  async #expect(id: Failure, which: string, turn: number | null): Promise<string | null> {
    const { value, etag } = await this.#endpoint.loadSnapshot(this.#session, this.#agent, which)
    if (!isDeepStrictEqual(value, turn === null ? null : snapshot(turn))) this.say(id)
    return etag ?? null
  }
}

function snapshot(turn: number): object {
  const message = { role: 'user', content: [{ text: `${turn} ${TEXT}` }] }
  const state = { empty: {}, list: [], none: null }
  const last = { actor: null, turn, key: null, reply: TEXT }
  const kept = { scope: 'agent', schema_version: '1.0', created_at: '2026-05-01T10:00:00Z' }
  return { ...kept, data: { messages: [message], state, system_prompt: null }, app_data: last }
}
