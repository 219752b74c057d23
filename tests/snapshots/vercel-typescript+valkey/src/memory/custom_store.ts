// Sessions at an endpoint of the owner's own, by the contract of a custom backend.

import { v7 as uuid7 } from 'uuid'

import { log } from '../contract.ts'
import { type Backend, Conflict, type Stored, Unavailable, Unsupported } from './backends.ts'
import { LambdaTransport } from './lambda_transport.ts'
import type { Collection } from './models.ts'
import { LATEST, Operations } from './operations.ts'
import type { Options } from './options.ts'
import { RestTransport } from './rest_transport.ts'
import type { Secrets } from './secrets.ts'
import { type Transport, UNREADABLE } from './transport.ts'
import { fromWire, isMarker, marker, setAside, toUnreadable, toWire } from './wire.ts'

const NO_ETAG = 'sends no ETag: of two instances in one session, the last to save wins'

/**
 * The transport that a collection declares; without secrets it sends no credentials.
 *
 * Throws Unavailable when its address is missing or is none.
 */
export function openTransport(
  { backend, collection_id: id }: Collection,
  options: Options,
  secrets: Secrets | null,
): Transport {
  const declared = backend.type === 'custom' ? backend.transport : undefined
  if (!declared) throw new Unavailable(`collection '${id}' has no transport`, true)
  if (declared.type === 'lambda') return new LambdaTransport(declared, options)
  return new RestTransport(declared, options, secrets)
}

/** The sessions of one agent at an endpoint, whose ETags are the revisions. */
export class CustomStore implements Backend {
  readonly contact: string
  readonly #endpoint: Operations
  readonly #agent: string
  readonly #aside: string
  #hasEtags = true
  #isWarned = false

  constructor(collection: Collection, agentId: string, options: Options, secrets: Secrets) {
    const transport = openTransport(collection, options, secrets)
    this.contact = transport.contact
    this.#endpoint = new Operations(transport)
    this.#agent = agentId
    this.#aside = `${agentId}.set-aside` // a scope of no agent: an agent id has no dot
  }

  async load(
    sessionId: string,
    known: string | null = null,
    checkpoint: string | null = null,
  ): Promise<Stored | null> {
    const [which, endpoint] = [checkpoint ?? LATEST, this.#endpoint]
    const found = await endpoint.loadSnapshot(sessionId, this.#agent, which, known)
    const { status, value, etag = null } = found
    if (status === 304) return { revision: known, snapshot: null }
    if (value === null) return null
    if (checkpoint === null) this.#note(etag)
    if (value === UNREADABLE) return { revision: etag, snapshot: toUnreadable(found.raw) }
    if (isMarker(value)) return null
    const isFirst = checkpoint === null && known === null
    const manifest = isFirst ? await endpoint.loadManifest(sessionId, this.#agent) : null
    return { revision: etag, snapshot: fromWire(value as Record<string, unknown>, manifest) }
  }

  async save(
    sessionId: string,
    snapshot: string,
    expected: string | null,
    checkpoint: string | null = null,
  ): Promise<string | null> {
    const wire = toWire(snapshot)
    let revision
    try {
      revision = await this.#replace(sessionId, wire, expected)
    } catch (error) {
      if (!(error instanceof Conflict) || expected !== null) throw error
      const { value, etag } = await this.#endpoint.loadSnapshot(sessionId, this.#agent, LATEST)
      if (!etag || !isMarker(value)) throw error
      revision = await this.#replace(sessionId, wire, etag)
    }
    if (wire.app_data.turn === 1) {
      await this.#endpoint.saveManifest(sessionId, this.#agent).catch((error) => {
        if (!(error instanceof Unavailable)) throw error
        log('WARNING', `session ${sessionId}: ${error.message}`) // the turn is committed without
      })
    }
    if (checkpoint) await this.keep(sessionId, snapshot, checkpoint)
    return revision
  }

  async keep(sessionId: string, snapshot: string, checkpoint: string): Promise<void> {
    const wire = toWire(snapshot)
    await this.#endpoint.saveSnapshot(sessionId, this.#agent, checkpoint, wire).catch((error) => {
      if (!(error instanceof Conflict || error instanceof Unavailable)) throw error
      log('WARNING', `session ${sessionId}: no checkpoint: ${error.message}`)
    })
  }

  async setAside(sessionId: string, revision: string | null): Promise<string> {
    const found = await this.#endpoint.loadSnapshot(sessionId, this.#agent, LATEST)
    const { value, etag = null, raw = Buffer.of() } = found
    if (value === null || etag !== revision) throw new Conflict()
    const name = uuid7()
    await this.#endpoint.saveSnapshot(sessionId, this.#aside, name, setAside(raw))
    await this.#replace(sessionId, marker(name), revision)
    return name
  }

  async checkpoints(sessionId: string): Promise<string[]> {
    return await this.#endpoint.allSnapshotIds(sessionId, this.#agent)
  }

  async asides(sessionId: string): Promise<string[]> {
    return await this.#endpoint.allSnapshotIds(sessionId, this.#aside)
  }

  async end(sessionId: string): Promise<void> {
    await this.#endpoint.deleteSession(sessionId)
  }

  async sessions(): Promise<string[]> {
    throw new Unsupported('The contract of a custom backend has no operation that lists sessions.')
  }

  async close(): Promise<void> {
    await this.#endpoint.close()
  }

  async #replace(sessionId: string, wire: object, match: string | null): Promise<string | null> {
    // Without ETags there is nothing to compare: a condition could only fail for ever.
    const condition = { match, noneMatch: match === null && this.#hasEtags ? '*' : null }
    return await this.#endpoint.saveSnapshot(sessionId, this.#agent, LATEST, wire, condition)
  }

  #note(etag: string | null): void {
    this.#hasEtags = etag !== null
    if (etag === null && !this.#isWarned) {
      this.#isWarned = true
      log('WARNING', `${this.contact} ${NO_ETAG}`)
    }
  }
}
