// The six operations of a custom backend, in the exact JSON of their contract.

import { Conflict, Unavailable } from './backends.ts'
import type { Answer, Condition, Request, Transport } from './transport.ts'
import { UNREADABLE } from './transport.ts'
import { isObject, now } from './wire.ts'

export const LATEST = 'latest'
const [PAGE, PAGES] = [1000, 100]
export const UUID7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

/**
 * What an endpoint is asked, and whether it answers what the contract says.
 *
 * Each throws Unavailable, which names the operation when the answer is another one.
 */
export class Operations {
  readonly #transport: Transport

  constructor(transport: Transport) {
    this.#transport = transport
  }

  /** Save the latest snapshot or, by a UUIDv7, one for ever; its ETag. Throws Conflict. */
  async saveSnapshot(
    sessionId: string,
    scopeId: string,
    snapshotId: string,
    snapshot: object,
    condition: Condition = {},
  ): Promise<string | null> {
    const isLatest = snapshotId === LATEST
    const which = { snapshot_id: snapshotId, is_latest: isLatest }
    const asked = { ...request('save_snapshot', sessionId, scopeId), ...which, snapshot }
    const answer = await this.#transport.call(asked, condition)
    if (answer.status === 412) throw new Conflict()
    // One for ever that was there is an earlier attempt's.
    if (isLatest || answer.status !== 409) this.#expectOk(asked, answer)
    return answer.etag ?? null
  }

  /** The snapshot, or UNREADABLE, or null; of status 304 when it still has that ETag. */
  async loadSnapshot(
    sessionId: string,
    scopeId: string,
    snapshotId: string,
    noneMatch?: string | null,
  ): Promise<Answer> {
    const asked = { ...request('load_snapshot', sessionId, scopeId), snapshot_id: snapshotId }
    const answer = await this.#transport.call(asked, { noneMatch })
    return answer.status === 304 && noneMatch ? answer : this.#expectObject(asked, answer)
  }

  /** The ids of what was saved for ever, ascending, after `startAfter`. */
  async listSnapshotIds(
    sessionId: string,
    scopeId: string,
    limit: number,
    startAfter: string | null = null,
  ): Promise<string[]> {
    const page = { limit, start_after: startAfter }
    const asked = { ...request('list_snapshot_ids', sessionId, scopeId), ...page }
    const answer = await this.#transport.call(asked)
    if (answer.status === 404) return []
    const { snapshot_ids: ids } = (answer.value ?? {}) as { snapshot_ids?: unknown }
    const isGood = Array.isArray(ids) && ids.every((one) => UUID7.test(one))
    if (!isGood || ids.some((one, at) => at > 0 && one < ids[at - 1])) {
      throw this.#other(asked, answer, '{"snapshot_ids": [UUIDv7, ascending]}')
    }
    return ids
  }

  /** The ids of all that was saved for ever, ascending. */
  async allSnapshotIds(sessionId: string, scopeId: string): Promise<string[]> {
    const ids: string[] = []
    for (let read = 0; read < PAGES; read++) {
      const last = ids.at(-1)
      const page = await this.listSnapshotIds(sessionId, scopeId, PAGE, last)
      if (!page[0] || (last && page[0] <= last)) break // the latter ignores start_after
      ids.push(...page)
    }
    return ids
  }

  /** Delete all of a session, known or not. */
  async deleteSession(sessionId: string): Promise<void> {
    const asked: Request = { operation: 'delete_session', session_id: sessionId }
    const answer = await this.#transport.call(asked)
    if (answer.status !== 404) this.#expectOk(asked, answer)
  }

  /** Say in which schema the snapshots are; the manifest. */
  async saveManifest(sessionId: string, scopeId: string): Promise<object> {
    const manifest = { schema_version: '1.0', updated_at: now() }
    const asked = { ...request('save_manifest', sessionId, scopeId), manifest }
    this.#expectOk(asked, await this.#transport.call(asked))
    return manifest
  }

  /** The manifest, or null. */
  async loadManifest(sessionId: string, scopeId: string): Promise<Record<string, unknown> | null> {
    const asked = request('load_manifest', sessionId, scopeId)
    const { value } = this.#expectObject(asked, await this.#transport.call(asked))
    return value === UNREADABLE ? {} : (value as Record<string, unknown> | null)
  }

  /** Close the connections. */
  async close(): Promise<void> {
    await this.#transport.close()
  }

  #expectOk(asked: Request, answer: Answer): void {
    const { ok } = (answer.value ?? {}) as { ok?: unknown }
    if (ok !== true) throw this.#other(asked, answer, '{"ok": true}')
  }

  #expectObject(asked: Request, answer: Answer): Answer {
    if (answer.status === 404) return { ...answer, value: null }
    const { status, value } = answer
    const isGood = value === null || value === UNREADABLE || isObject(value)
    if (status >= 300 || !isGood) {
      throw this.#other(asked, answer, 'an object or null')
    }
    return answer
  }

  #other(asked: Request, { status }: Answer, wanted: string): Unavailable {
    const what = `${asked.operation} of ${this.#transport.contact}: HTTP ${status}`
    return new Unavailable(`${what}, instead of ${wanted}`, status >= 400 && status < 500)
  }
}

function request(operation: Request['operation'], sessionId: string, scopeId: string): Request {
  return { operation, session_id: sessionId, scope: { type: 'agent', scope_id: scopeId } }
}
