// Sessions in Valkey or Redis, including clusters: a hash per session, changed by Lua scripts.

import type { Cluster, Redis, RedisOptions } from 'iovalkey'
import { v7 as uuid7 } from 'uuid'

import { forEach, type Stock } from '../collections/erasure.ts'
import type { SecretRef } from '../collections/fields.ts'
import type { Collection } from '../collections/models.ts'
import type { Secrets } from '../collections/secrets.ts'
import { readAddress, secretRefs, type ValkeyConfig } from '../collections/session_backend.ts'
import { log } from '../log.ts'
import type { Stored } from '../sessions/session_store.ts'
import { Conflict, decode, type DurableStore, type Files, idAfter, NO_FILES } from './base.ts'
import { readLimit, segmentOf, sessionOf, StoreUnavailable, unavailable } from './base.ts'
import { type StoreWarning, TooLarge, withinSeconds } from './base.ts'
import type { StoreSettings } from './settings.ts'
import type { ValkeySettings } from './valkey_settings.ts'

// Fields of a hash: `latest` and its revision `rev`, `h:<uuid7>` for each checkpoint,
// `f:<name>` for each file, `aside:<uuid7>` for each quarantined snapshot. Without `latest` the
// revision is ''. A key of another type counts as an unreadable snapshot.
const REVISION = `
local found = redis.pcall('HEXISTS', KEYS[1], 'latest')
local is_foreign = type(found) == 'table'
if is_foreign and not string.find(found.err, 'WRONGTYPE') then return found end
local revision = found == 1 and (redis.call('HGET', KEYS[1], 'rev') or '-') or ''
if is_foreign then revision = 'foreign' end
`
const EXPIRE = `
if tonumber(ARGV[1]) > 0 then redis.call('EXPIRE', KEYS[1], ARGV[1])
else redis.call('PERSIST', KEYS[1]) end
return 1`
// ARGV: field, known revision, maximum size in bytes. Returns a larger snapshot empty, and a 1.
const LOAD = `${REVISION}
if is_foreign then return ARGV[1] == 'latest' and {revision, ''} end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return false end
if revision == ARGV[2] then return {revision} end
if redis.call('HSTRLEN', KEYS[1], ARGV[1]) > tonumber(ARGV[3]) then return {revision, '', 1} end
return {revision, redis.call('HGET', KEYS[1], ARGV[1])}`
// ARGV: seconds to live or 0, expected revision, new revision or '' to keep the latest snapshot,
// snapshot, field of the checkpoint or '', number of checkpoints to keep, then the name and the
// content of each new file.
const SAVE = `${REVISION}
if is_foreign or revision == '' and ARGV[3] == '' then return 0 end
if ARGV[3] ~= '' then
  if revision ~= ARGV[2] then return 0 end
  redis.call('HSET', KEYS[1], 'latest', ARGV[4], 'rev', ARGV[3])
  for i = 7, #ARGV, 2 do redis.call('HSET', KEYS[1], 'f:' .. ARGV[i], ARGV[i + 1]) end
end
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[1], ARGV[5], ARGV[4])
  local fields = {}
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 2) == 'h:' then table.insert(fields, field) end
  end
  table.sort(fields)
  for i = 1, #fields - tonumber(ARGV[6]) do redis.call('HDEL', KEYS[1], fields[i]) end
end
${EXPIRE}`
// Deletes each file that no snapshot contains the name of.
const TRIM = `
local fields = redis.pcall('HKEYS', KEYS[1])
if fields.err then return 0 end
local files = {}
local snapshots = {}
for _, field in ipairs(fields) do
  if string.sub(field, 1, 2) == 'f:' then table.insert(files, string.sub(field, 3))
  else table.insert(snapshots, redis.call('HGET', KEYS[1], field)) end
end
for _, name in ipairs(files) do
  local is_used = false
  for _, snapshot in ipairs(snapshots) do
    is_used = is_used or string.find(snapshot, name, 1, true)
  end
  if not is_used then redis.call('HDEL', KEYS[1], 'f:' .. name) end
end
return 1
`
// ARGV: seconds to live or 0, expected revision, field to move the snapshot to. RESTORE reverts
// DUMP.
const QUARANTINE = `${REVISION}
if revision ~= ARGV[2] then return 0 end
local value
if is_foreign then
  value = redis.call('DUMP', KEYS[1])
  redis.call('DEL', KEYS[1])
else
  value = redis.call('HGET', KEYS[1], 'latest')
  redis.call('HDEL', KEYS[1], 'latest', 'rev')
end
redis.call('HSET', KEYS[1], ARGV[3], value)
${EXPIRE}`
const FIELDS = `
local fields = redis.pcall('HKEYS', KEYS[1])
if fields.err and string.find(fields.err, 'WRONGTYPE') then return {} end
return fields`

/**
 * A DurableStore of the hashes `<key_prefix>:<session_id>:agent:<agent_id>`.
 *
 * A session is a single key, so scripts are atomic in a cluster too. Each save restarts the time to
 * live, `ttl_seconds`.
 */
export class ValkeyStore implements DurableStore {
  readonly contact: string
  readonly #prefix: string
  readonly #suffix: string
  readonly #secondsToLive: number
  readonly #settings: StoreSettings
  readonly #maxBytes: number
  readonly #replicas: number
  readonly #waitSeconds: number
  readonly #connection: Connection

  constructor(collection: Collection, agentId: string, settings: StoreSettings, secrets: Secrets) {
    const config = collection.backend as ValkeyConfig
    this.#prefix = `${config.key_prefix}:`
    this.#suffix = `:agent:${agentId}`
    this.#secondsToLive = config.ttl_seconds ?? 0
    this.#settings = settings
    this.#maxBytes = readLimit(settings.maxSnapshotBytes)
    this.#replicas = (settings as ValkeySettings).valkeyWaitReplicas
    // WAIT may block for the whole time. Two in a row must fit into a call's time limit.
    this.#waitSeconds = settings.storeTimeoutSeconds / 3
    this.#connection = new Connection(config, settings.storeTimeoutSeconds, secrets)
    this.contact = `the server of secret '${config.endpoint_secret}'`
  }

  async load(sessionId: string, known: Stored | null = null): Promise<Stored | null> {
    const revision = known?.revision ?? '?'
    const found = await this.#eval(LOAD, sessionId, 'latest', revision, this.#maxBytes)
    if (!found) return null
    const [current, snapshot, isTooLarge] = found as [Buffer, Buffer?, number?]
    if (isTooLarge) return new TooLarge(current.toString())
    return snapshot ? { revision: current.toString(), snapshot: decode(snapshot) } : known
  }

  async save(
    sessionId: string,
    snapshot: string,
    expected: string | null,
    checkpoint: string | null = null,
    files: Files = NO_FILES,
  ): Promise<string> {
    const revision = idAfter([expected])
    const field = checkpoint ? `h:${checkpoint}` : ''
    const contents = [...files].flatMap(([name, content]) => [name, Buffer.from(content)])
    const values = [revision, snapshot, field, this.#settings.checkpoints, ...contents]
    const first = [SAVE, 1, this.#key(sessionId), this.#secondsToLive, expected ?? '']
    if (!(await this.#write(sessionId, 'eval', ...first, ...values))) throw new Conflict()
    return revision
  }

  async saveCheckpoint(sessionId: string, snapshot: string, checkpoint: string): Promise<void> {
    const values = ['', '', snapshot, `h:${checkpoint}`, this.#settings.checkpoints]
    await this.#eval(SAVE, sessionId, this.#secondsToLive, ...values).catch((error) => {
      if (!(error instanceof StoreUnavailable)) throw error
      log('WARNING', `session ${sessionId}: the checkpoint was not saved: ${error.message}`)
    })
  }

  async loadCheckpoint(sessionId: string, checkpoint: string): Promise<string | null> {
    const found = await this.#eval(LOAD, sessionId, `h:${checkpoint}`, '?', this.#maxBytes)
    const [, snapshot] = (found ?? []) as [Buffer?, Buffer?]
    return snapshot ? decode(snapshot) : null
  }

  async checkpoints(sessionId: string): Promise<string[]> {
    return (await this.#fields(sessionId, 'h:')).map((field) => field.slice('h:'.length))
  }

  async loadFiles(sessionId: string, names: readonly string[]): Promise<Files> {
    const fields = names.map((name) => `f:${name}`)
    const key = this.#key(sessionId)
    const reply = await this.#connection.run((client) => client.hmgetBuffer(key, ...fields))
    const files = new Map<string, Uint8Array>()
    for (const [index, name] of names.entries()) {
      const content = reply[index]
      if (content) files.set(name, content)
    }
    return files
  }

  async trimFiles(sessionId: string): Promise<void> {
    await this.#eval(TRIM, sessionId).catch((error) => {
      if (!(error instanceof StoreUnavailable)) throw error
      log('WARNING', `session ${sessionId}: old files were not deleted: ${error.message}`)
    })
  }

  async quarantine(sessionId: string, revision: string | null): Promise<string> {
    const field = `aside:${uuid7()}`
    const seconds = this.#secondsToLive
    const isMoved = await this.#eval(QUARANTINE, sessionId, seconds, revision ?? '?', field)
    if (!isMoved) throw new Conflict()
    return `${this.#key(sessionId)} ${field}`
  }

  async quarantined(sessionId: string): Promise<string[]> {
    const fields = await this.#fields(sessionId, 'aside:')
    return fields.map((field) => `${this.#key(sessionId)} ${field}`)
  }

  async end(sessionId: string): Promise<void> {
    await this.#write(sessionId, 'unlink', this.#key(sessionId))
  }

  async sessions(): Promise<string[]> {
    const keys = await this.#keys(this.#prefix, this.#suffix)
    const segments = [...keys].map((key) => key.slice(this.#prefix.length, -this.#suffix.length))
    const ids = segments.map(sessionOf).filter((id) => id !== null)
    return ids.sort()
  }

  /** Return the keys of `keysBeside`, such as the events of background turns. */
  leftovers(): Stock[] {
    // The key of a session has no brace: see `segmentOf`.
    const keys = () => this.#keys(`${this.#prefix}{`, '}:', this.#suffix)
    const unlink = (key: string) => this.#connection.run((client) => client.unlink(key))
    return [
      {
        what: 'other keys of sessions',
        where: this.contact,
        async *pages() {
          yield [...(await keys())].toSorted()
        },
        delete: (names) => forEach(names, unlink),
        failures: [StoreUnavailable],
      },
    ]
  }

  /** Return the keys with these parts, and any text between them. */
  async #keys(...parts: string[]): Promise<Set<string>> {
    const escaped = parts.map((part) => part.replace(/[\][*?\\]/g, '\\$&'))
    return await this.#connection.keys(escaped.join('*'))
  }

  async warnings(): Promise<StoreWarning[]> {
    let info: string
    try {
      info = await this.#connection.run(readInfo)
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error
      const problem = 'The check for possible data loss failed'
      return [['AML-W161', `${problem}: ${error.message}.`]]
    }
    const value = (name: string) => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1] ?? ''
    const messages: string[] = []
    const policy = value('maxmemory_policy')
    const evicts = this.#secondsToLive > 0 ? /^(allkeys|volatile)-/ : /^allkeys-/
    if (Number(value('maxmemory')) && evicts.test(policy)) {
      const problem = `maxmemory-policy is ${policy}: a full server evicts sessions`
      messages.push(`${problem}. Set noeviction.`)
    }
    if (value('aof_enabled') === '0' && value('save') === '')
      messages.push(
        'The server saves nothing to disk: a restart loses all sessions. Enable AOF or RDB.',
      )
    const isPrimary = value('role') === 'master'
    const count = Number(value('connected_slaves'))
    // INFO has this field only if min-replicas-to-write is set.
    if (isPrimary && count > 0 && value('min_slaves_good_slaves') === '') {
      const problem = 'The server has replicas and min-replicas-to-write is 0'
      messages.push(`${problem}: a failover discards turns of an isolated primary. Set it to 1.`)
    }
    if (isPrimary && count < this.#replicas) {
      const problem = `VALKEY_WAIT_REPLICAS is ${this.#replicas}, but the server has only ${count}`
      messages.push(
        `${problem}: each turn waits ${this.#waitSeconds.toFixed(1)} s until the timeout.`,
      )
    }
    return messages.map((message) => ['AML-W161', message])
  }

  async close(): Promise<void> {
    this.#connection.close()
  }

  #key(sessionId: string): string {
    return this.#prefix + segmentOf(sessionId) + this.#suffix
  }

  /** Return keys for more data of a session; a cluster keeps them on one node. */
  keysBeside(sessionId: string, ...names: string[]): string[] {
    // A cluster chooses the node by the text between the braces.
    const tag = segmentOf(sessionId)
    return names.map((name) => `${this.#prefix}{${tag}}:${name}${this.#suffix}`)
  }

  /** Return the result of a script on keys of one node. Throws StoreUnavailable. */
  evaluate(
    script: string,
    keys: readonly string[],
    ...values: (string | number)[]
  ): Promise<unknown> {
    const args = [script, keys.length, ...keys, ...values]
    return this.#connection.run((client) => client.callBuffer('eval', ...args))
  }

  #eval(script: string, sessionId: string, ...values: (string | number)[]): Promise<unknown> {
    return this.evaluate(script, [this.#key(sessionId)], ...values)
  }

  /** Send a command that changes a session, wait for replicas, and return its reply. */
  async #write(sessionId: string, ...command: Command): Promise<unknown> {
    const replicas = this.#replicas
    if (replicas === 0) return await this.#connection.run((client) => client.callBuffer(...command))
    const milliseconds = Math.round(this.#waitSeconds * 1000)
    const [reply, confirmed] = await this.#connection.run((client, stop) =>
      writeAndWait(client, command, replicas, milliseconds, stop),
    )
    if (reply && confirmed < replicas) {
      const problem = `only ${confirmed} of ${replicas} replicas confirmed it`
      log('WARNING', `session ${sessionId}: changed, but ${problem}: a failover may undo it`)
    }
    return reply
  }

  async #fields(sessionId: string, start: string): Promise<string[]> {
    const found = (await this.#eval(FIELDS, sessionId)) as Buffer[]
    const fields = found.map((field) => field.toString())
    return fields.filter((field) => field.startsWith(start)).sort()
  }
}

type Client = Redis | Cluster
type Command = [name: string, ...values: (string | number | Buffer)[]]
type Result = [error: Error | null, reply: unknown]

/** Return the settings of a server or node that affect data loss. */
async function readInfo(client: Client): Promise<string> {
  const info: string[] = []
  for (const part of ['memory', 'persistence', 'replication']) info.push(await client.info(part))
  const config = client.call('config', 'get', 'save') as Promise<string[]>
  const save = await config.then(
    ([, value]) => value,
    () => 'unknown', // many cloud services forbid CONFIG
  )
  return `${info.join('\n')}\nsave:${save}\n`
}

/**
 * Return the reply to a command, and the number of replicas that confirmed it.
 *
 * WAIT covers the writes of its connection and blocks other calls on it, so open a new
 * connection. `stop` closes it, because a hanging server never replies.
 */
async function writeAndWait(
  client: Client,
  command: Command,
  replicas: number,
  milliseconds: number,
  stop: AbortSignal,
): Promise<[reply: unknown, confirmed: number]> {
  const connection = client.duplicate()
  connection.on('error', () => {}) // the call itself reports the error
  stop.addEventListener('abort', () => connection.disconnect())
  try {
    await connection.connect()
    const pipeline = connection
      .pipeline()
      .callBuffer(...command)
      .call('wait', replicas, milliseconds)
    const [[error, reply], [, confirmed]] = (await pipeline.exec()) as [Result, Result]
    if (error) throw error
    return [reply, Number(confirmed ?? 0)]
  } finally {
    connection.disconnect()
  }
}

/** An open or opening connection; its failure aborts `end`. */
interface Open {
  readonly address: string
  readonly client: Promise<Client>
  readonly end: AbortController
  /** The error that closed the connection, if any. */
  readonly failure: { cause?: Error }
}

// Do not reconnect or resend: the next call opens a new connection.
const ONCE = {
  lazyConnect: true,
  enableReadyCheck: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  family: 0,
} as const

/** A client of the server or cluster whose address is a secret; a new secret, a new client. */
class Connection {
  readonly #ref: SecretRef
  readonly #port: number
  readonly #seconds: number
  readonly #secrets: Secrets
  #name: string
  #open: Open | null = null
  #wasReplica = false

  constructor(config: ValkeyConfig, seconds: number, secrets: Secrets) {
    this.#ref = secretRefs(config)[0]!
    this.#port = config.port
    this.#seconds = seconds
    this.#secrets = secrets
    this.#name = `valkey of secret '${this.#ref.reference}'`
  }

  /**
   * Return the result of `use` within the time limit. Throws StoreUnavailable.
   *
   * After a failover the server may be a replica; after a rotation it rejects the old password. In
   * both cases, reread the secret and retry once with a new connection.
   */
  async run<T>(use: (client: Client, stop: AbortSignal) => Promise<T>): Promise<T> {
    let open: Open | null = null
    let isSent = false
    await import('iovalkey') // lazily, for a fast start; outside the time limit
    try {
      return await withinSeconds(this.#seconds, async (stop) => {
        const attempt = async () => {
          isSent = false
          open = this.#connect(await this.#secrets.get(this.#ref))
          const client = await open.client
          stop.throwIfAborted()
          isSent = true
          return await use(client, stop)
        }
        try {
          return await attempt()
        } catch (error) {
          const cause = causeOf(error, open)
          if (!isOfReplica(cause) && !isOfPassword(cause)) throw error
          this.#wasReplica ||= isOfReplica(cause)
          this.#retire(open)
          if (isOfPassword(cause)) await this.#secrets.get(this.#ref, true)
          return await attempt()
        }
      })
    } catch (error) {
      const cause = causeOf(error, open)
      if (!isReply(error) || isOfReplica(cause) || isOfPassword(cause)) this.#retire(open)
      // Log only the first word of a reply: the rest may quote data of the request.
      const reply = isReply(cause) && (/^[A-Z]{3,}(?= )/.exec(cause.message)?.[0] ?? 'ERR')
      const message = reply ? `${this.#name}: ${reply}` : unavailable(this.#name, cause).message
      throw new StoreUnavailable(message, { indeterminate: isSent && !isReply(error) })
    }
  }

  /** Return all keys that match the pattern. Each page has its own time limit. */
  async keys(pattern: string): Promise<Set<string>> {
    const found = new Set<string>()
    const servers = await this.run(async (client) => {
      return 'nodes' in client ? client.nodes('master') : [client]
    })
    for (const server of servers) {
      let cursor = '0'
      do {
        const scan = () => server.scan(cursor, 'MATCH', pattern, 'COUNT', 1000)
        const [next, keys] = await this.run(scan)
        for (const key of keys) found.add(key)
        cursor = next
      } while (cursor !== '0')
    }
    return found
  }

  close(): void {
    this.#open?.end.abort()
  }

  #connect(address: string): Open {
    const old = this.#open
    if (old?.address === address && !old.end.signal.aborted) return old
    const { server, access } = readAddress(address, this.#port)!
    // A secret that is not a URL may be a password, by mistake.
    const host = server.host.includes(':') ? `[${server.host}]` : server.host
    const where = `at ${host}:${server.port}`
    const isUrl = address.includes('://')
    this.#name = `valkey ${isUrl ? where : `of secret '${this.#ref.reference}'`}`
    this.#retire(old)
    const end = new AbortController()
    const failure = {}
    const client = connect(server, access, end, failure, this.#wasReplica)
    this.#open = { address, client, end, failure }
    return this.#open
  }

  /** Close a connection after the time limit, so that its running calls can end. */
  #retire(open: Open | null): void {
    if (this.#open === open) this.#open = null
    if (open) setTimeout(() => open.end.abort(), this.#seconds * 1000).unref()
  }
}

type Address = NonNullable<ReturnType<typeof readAddress>>

/** Connect to a server, or to its cluster. */
async function connect(
  server: Address['server'],
  access: RedisOptions,
  end: AbortController,
  failure: Open['failure'],
  wasReplica: boolean,
) {
  const { Cluster, Redis } = await import('iovalkey')
  const options = { ...ONCE, ...access }
  const first = new Redis({ ...options, ...server, retryStrategy: () => null })
  await start(first, end, failure)
  if (server.db) {
    // If the server rejects SELECT, the client would silently use database 0.
    await first.select(server.db).catch((error: Error) => {
      throw isReply(error) ? new StoreUnavailable(error.name, { indeterminate: false }) : error
    })
  }
  const slots = await first.cluster('SLOTS').catch((error: Error) => {
    if (isReply(error)) return [] // not in a cluster, or without permission for CLUSTER
    throw error
  })
  // A node without other nodes in its cluster omits its own address.
  if (slots.every(([, , node]) => !node?.[0])) {
    // Its turns would fail at the commit.
    if (wasReplica && (await isReplica(first)))
      throw new StoreUnavailable('a read-only replica', { indeterminate: false })
    return first
  }
  first.removeAllListeners('end').disconnect()
  const cluster = new Cluster([server], {
    lazyConnect: true,
    redisOptions: options,
    retryDelayOnFailover: 0,
    clusterRetryStrategy: () => null,
    dnsLookup: (name, done) => done(null, name), // certificates contain host names, not addresses
  })
  await start(cluster, end, failure)
  return cluster
}

async function start(client: Client, end: AbortController, failure: Open['failure']) {
  // Without a listener, the client prints the error.
  client.on('error', (error: Error) => (failure.cause = error))
  client.once('end', () => {
    failure.cause ??= new StoreUnavailable('the connection was closed')
    end.abort()
  })
  end.signal.throwIfAborted()
  end.signal.addEventListener('abort', () => client.status !== 'end' && client.disconnect())
  await client.connect()
}

async function isReplica(client: Redis): Promise<boolean> {
  const info = await client.info('replication').catch((error: Error) => {
    if (isReply(error)) return '' // without permission for INFO
    throw error
  })
  return info.includes('role:slave')
}

/** Return an error reply, or the failure of the connection behind an error. */
function causeOf(error: unknown, open: Open | null): unknown {
  return isReply(error) ? error : (open?.failure.cause ?? error)
}

function isReply(error: unknown): error is Error {
  return (error as Error).name === 'ReplyError'
}

function isOfReplica(error: unknown): boolean {
  return isReply(error) && /^READONLY |-READONLY /.test(error.message) // Redis 6 sends the latter
}

function isOfPassword(error: unknown): boolean {
  return isReply(error) && /^(WRONGPASS|NOAUTH|ERR invalid password)/.test(error.message)
}
