// Sessions in Valkey or Redis: one hash for each, changed by scripts that compare first.

import { v7 as uuid7 } from 'uuid'

import { SESSION_ID } from '../contract.ts'
import { type Backend, Conflict, type Stored } from './backends.ts'
import { decode } from './bounded.ts'
import type { Collection } from './models.ts'
import type { Options } from './options.ts'
import type { Secrets } from './secrets.ts'
import { ValkeyClient } from './valkey_client.ts'

type Declared = Extract<Collection['backend'], { type: 'valkey' }>

// Fields of a hash: `latest` and its revision `rev`, `manifest`, `h:<uuid7>` for each checkpoint,
// `aside:<uuid7>` for what was set aside. '' is the revision of a session without `latest`.
const REVISION = `
local is_there = redis.call('HEXISTS', KEYS[1], 'latest') == 1
local revision = is_there and (redis.call('HGET', KEYS[1], 'rev') or '-') or ''
`
const LIVE = `
if tonumber(ARGV[1]) > 0 then redis.call('EXPIRE', KEYS[1], ARGV[1])
else redis.call('PERSIST', KEYS[1]) end
return 1`
// ARGV: field, known revision, most bytes. What is larger is handed on empty, which is no snapshot.
const LOAD = `${REVISION}
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return false end
if revision == ARGV[2] then return {revision} end
if redis.call('HSTRLEN', KEYS[1], ARGV[1]) > tonumber(ARGV[3]) then return {revision, ''} end
return {revision, redis.call('HGET', KEYS[1], ARGV[1])}`
// ARGV: seconds to live or 0, expected and new revision, snapshot, manifest, field of the
// checkpoint or '', how many checkpoints to keep.
const SAVE = `${REVISION}
if revision ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'latest', ARGV[4], 'rev', ARGV[3], 'manifest', ARGV[5])
if ARGV[6] ~= '' then
  redis.call('HSET', KEYS[1], ARGV[6], ARGV[4])
  local kept = {}
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 2) == 'h:' then table.insert(kept, field) end
  end
  table.sort(kept)
  for i = 1, #kept - tonumber(ARGV[7]) do redis.call('HDEL', KEYS[1], kept[i]) end
end
${LIVE}`
// ARGV: seconds to live or 0, expected revision, field to move it to.
const SET_ASIDE = `${REVISION}
if revision ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[3], redis.call('HGET', KEYS[1], 'latest'))
redis.call('HDEL', KEYS[1], 'latest', 'rev')
${LIVE}`

/** The hashes `<key_prefix>:<session_id>:agent:<agent_id>`. */
export class ValkeyStore implements Backend {
  readonly contact: string
  readonly #prefix: string
  readonly #suffix: string
  readonly #secondsToLive: number
  readonly #options: Options
  readonly #client: ValkeyClient

  constructor(collection: Collection, agentId: string, options: Options, secrets: Secrets) {
    const { endpoint_secret: reference = '', port, ...declared } = collection.backend as Declared
    this.#prefix = `${declared.key_prefix}:`
    this.#suffix = `:agent:${agentId}`
    this.#secondsToLive = declared.ttl_seconds ?? 0
    this.#options = options
    this.#client = new ValkeyClient(reference, port, options.storeTimeoutSeconds, secrets)
    this.contact = `the server of secret '${reference}'`
  }

  async load(
    sessionId: string,
    known: string | null = null,
    checkpoint: string | null = null,
  ): Promise<Stored | null> {
    const field = checkpoint ? `h:${checkpoint}` : 'latest'
    const most = this.#options.maxSnapshotBytes
    const found = await this.#run(LOAD, sessionId, field, known ?? '?', most)
    if (!found) return null
    const [revision, snapshot] = found as [Buffer, Buffer?]
    return { revision: revision.toString(), snapshot: snapshot ? decode(snapshot) : null }
  }

  async save(
    sessionId: string,
    snapshot: string,
    expected: string | null,
    checkpoint: string | null = null,
  ): Promise<string> {
    const [revision, now] = [uuid7(), new Date().toISOString()]
    const manifest = JSON.stringify({ schema_version: '1.0', updated_at: now })
    const field = checkpoint ? `h:${checkpoint}` : ''
    const values = [revision, snapshot, manifest, field, this.#options.checkpoints]
    const first = [this.#secondsToLive, expected ?? '']
    if (!(await this.#run(SAVE, sessionId, ...first, ...values))) throw new Conflict()
    return revision
  }

  async keep(): Promise<void> {} // `save` did both at once

  async setAside(sessionId: string, revision: string | null): Promise<string> {
    const [field, live] = [`aside:${uuid7()}`, this.#secondsToLive]
    if (!(await this.#run(SET_ASIDE, sessionId, live, revision ?? '?', field))) throw new Conflict()
    return `${this.#key(sessionId)} ${field}`
  }

  async checkpoints(sessionId: string): Promise<string[]> {
    return (await this.#fields(sessionId, 'h:')).map((field) => field.slice('h:'.length))
  }

  async asides(sessionId: string): Promise<string[]> {
    const fields = await this.#fields(sessionId, 'aside:')
    return fields.map((field) => `${this.#key(sessionId)} ${field}`)
  }

  async end(sessionId: string): Promise<void> {
    await this.#client.run((it) => it.unlink(this.#key(sessionId)))
  }

  async sessions(): Promise<string[]> {
    const escaped = [this.#prefix, this.#suffix].map((it) => it.replace(/[\][*?\\]/g, '\\$&'))
    const keys = await this.#client.keys(escaped.join('*'))
    const ids = [...keys].map((key) => key.slice(this.#prefix.length, -this.#suffix.length))
    return ids.filter((id) => SESSION_ID.test(id)).sort()
  }

  async close(): Promise<void> {
    this.#client.close()
  }

  #key(sessionId: string): string {
    return this.#prefix + sessionId + this.#suffix
  }

  #run(script: string, sessionId: string, ...values: (string | number)[]): Promise<unknown> {
    const all = [script, 1, this.#key(sessionId), ...values]
    return this.#client.run((it) => it.callBuffer('eval', ...all))
  }

  async #fields(sessionId: string, start: string): Promise<string[]> {
    const fields = await this.#client.run((it) => it.hkeys(this.#key(sessionId)))
    return fields.filter((field) => field.startsWith(start)).sort()
  }
}
