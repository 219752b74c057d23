// An example of a custom backend: `node tests/harness/reference_endpoint.ts --port 8081`.
//
// It speaks REST and the wire format of AWS Lambda. Each save creates a new ETag. With `--strict`
// it stores only the fields that the specification documents.

import { randomUUID } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { DatabaseSync } from 'node:sqlite'
import { text } from 'node:stream/consumers'
import { parseArgs } from 'node:util'

/** The answer to an operation. */
interface Answer {
  status: number
  json: string
  etag?: string | null
}

/** A request in the form of a Lambda payload. */
interface Operation {
  [field: string]: unknown
  scope?: Operation
}

const ID = '[A-Za-z0-9][A-Za-z0-9._-]{0,299}'
const UUID7 = '[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}'
const SNAPSHOT_ID = `latest|${UUID7}` // the latest snapshot, or a checkpoint
const MAX_CHECKPOINTS = 1000
const OK = '{"ok": true}'

/** The operations, by REST method and path. */
const OPERATIONS: Record<string, string> = {
  'POST /snapshots': 'save_snapshot',
  'GET /snapshots': 'load_snapshot',
  'GET /snapshots/list': 'list_snapshot_ids',
  'DELETE /sessions': 'delete_session',
  'POST /manifests': 'save_manifest',
  'GET /manifests': 'load_manifest',
}

const TABLE = 'CREATE TABLE IF NOT EXISTS kept(sid, scope, id, etag, json, UNIQUE(sid, scope, id))'
const HERE = 'FROM kept WHERE sid = ? AND scope = ?'
const CHECKPOINTS = `${HERE} AND id LIKE '%-%'`
const OLD = `SELECT rowid ${CHECKPOINTS} ORDER BY id DESC LIMIT -1 OFFSET ${MAX_CHECKPOINTS}`

/** The rows of a database. Methods are synchronous, so each comparison and save is atomic. */
class Rows {
  readonly #db: DatabaseSync
  readonly #isStrict: boolean

  constructor(file: string, isStrict: boolean) {
    this.#db = new DatabaseSync(file)
    this.#db.exec(TABLE)
    this.#isStrict = isStrict
  }

  /** Run an operation. Throws TypeError for a missing or invalid value. */
  run(operation: Operation): Answer {
    const name = textOf(operation, 'operation')
    const session = textOf(operation, 'session_id')
    if (name === 'delete_session') return this.#deleteSession(session)
    const type = textOf(operation.scope, 'type')
    const scope = `${type}/${textOf(operation.scope, 'scope_id')}`
    switch (name) {
      case 'list_snapshot_ids':
        return this.#list(session, scope, operation)
      case 'load_snapshot':
        return this.#load(session, scope, textOf(operation, 'snapshot_id', SNAPSHOT_ID), operation)
      case 'load_manifest':
        return this.#load(session, scope, 'manifest', operation)
      case 'save_snapshot':
        return this.#saveSnapshot(session, scope, operation)
      case 'save_manifest':
        return this.#save(session, scope, 'manifest', objectOf(operation, 'manifest'), operation)
      default:
        throw new TypeError(`${name} is not an operation`)
    }
  }

  #deleteSession(session: string): Answer {
    this.#db.prepare('DELETE FROM kept WHERE sid = ?').run(session)
    return { status: 200, json: OK }
  }

  #list(session: string, scope: string, operation: Operation): Answer {
    const after = String(operation.start_after ?? '')
    const limit = Math.min(Number(operation.limit ?? MAX_CHECKPOINTS), MAX_CHECKPOINTS)
    const select = `SELECT id ${CHECKPOINTS} AND id > ? ORDER BY id LIMIT max(0, ?)`
    const rows = this.#db.prepare(select).all(session, scope, after, limit)
    return { status: 200, json: JSON.stringify({ snapshot_ids: rows.map(({ id }) => id) }) }
  }

  #find(session: string, scope: string, id: string): { etag: string; json: string } | null {
    const select = `SELECT etag, json ${HERE} AND id = ?`
    const row = this.#db.prepare(select).get(session, scope, id)
    return row ? { etag: String(row.etag), json: String(row.json) } : null
  }

  #load(session: string, scope: string, id: string, operation: Operation): Answer {
    const row = this.#find(session, scope, id)
    if (!row) return { status: 200, json: 'null' }
    const isKnown = operation.if_none_match === row.etag
    return { status: isKnown ? 304 : 200, ...row }
  }

  #saveSnapshot(session: string, scope: string, operation: Operation): Answer {
    const id = textOf(operation, 'snapshot_id', SNAPSHOT_ID)
    const snapshot = objectOf(operation, 'snapshot')
    const value = this.#isStrict ? documented(snapshot) : snapshot
    const checkpoint = id === 'latest' ? null : this.#find(session, scope, id)
    if (!checkpoint) return this.#save(session, scope, id, value, operation)
    // A checkpoint never changes; an identical save is a retry.
    const { etag } = checkpoint
    if (checkpoint.json === JSON.stringify(value)) return { status: 200, json: OK, etag }
    return { status: 409, json: '{"ok": false}', etag }
  }

  #save(session: string, scope: string, id: string, value: object, operation: Operation): Answer {
    const current = this.#find(session, scope, id)?.etag ?? null
    const { if_match: expected, if_none_match: unexpected } = operation
    const hasChanged = typeof expected === 'string' && expected !== current
    const mustBeNew = unexpected === '*'
    if (hasChanged || (mustBeNew && current)) {
      return { status: 412, json: '{"ok": false, "error": "conflict"}', etag: current }
    }
    const etag = `"${randomUUID()}"`
    const replace = this.#db.prepare('REPLACE INTO kept VALUES (?, ?, ?, ?, ?)')
    replace.run(session, scope, id, etag, JSON.stringify(value))
    this.#db.prepare(`DELETE FROM kept WHERE rowid IN (${OLD})`).run(session, scope)
    return { status: 200, json: OK, etag }
  }
}

/** Return the fields of a snapshot that the specification documents. */
function documented({ data, schema_version, created_at }: any): object {
  const { messages, state, system_prompt } = data
  return { data: { messages, state, system_prompt }, schema_version, created_at }
}

/** Return a required string of a request. Throws TypeError. */
function textOf(operation: Operation | undefined, name: string, pattern = ID): string {
  const value = operation?.[name]
  if (typeof value === 'string' && new RegExp(`^(${pattern})$`).test(value)) return value
  throw new TypeError(`${name} is missing or invalid`)
}

/** Return a required object of a request. Throws TypeError. */
function objectOf(operation: Operation, name: string): object {
  const value = operation[name]
  if (typeof value === 'object' && value !== null) return value
  throw new TypeError(`${name} is missing`)
}

/** Create the server, not listening yet; without `token` it accepts all callers. */
export function createEndpoint(file = ':memory:', token = '', isStrict = false): Server {
  const rows = new Rows(file, isStrict)

  /** Answer a Lambda call. AWS authenticates the caller; the ETag is part of the payload. */
  async function answerCall(request: IncomingMessage): Promise<Answer> {
    const { json, etag } = rows.run(JSON.parse(await text(request)))
    if (!etag) return { status: 200, json }
    return { status: 200, json: JSON.stringify({ ...JSON.parse(json), etag }) }
  }

  async function answerRest(request: IncomingMessage): Promise<Answer> {
    const body = await text(request)
    const url = new URL(request.url ?? '', 'http://endpoint')
    const { authorization, 'if-match': if_match, 'if-none-match': if_none_match } = request.headers
    if (token && authorization !== `Bearer ${token}`) {
      return { status: 401, json: '{"error": "the token is missing or wrong"}' }
    }
    const [, first = '', session_id = ''] = url.pathname.split('/')
    const path = first === 'sessions' ? '/sessions' : url.pathname
    const operation = OPERATIONS[`${request.method} ${path}`]
    if (!operation) return { status: 404, json: '{"error": "no such operation"}' }
    const { scope_type: type, scope_id, ...query } = Object.fromEntries(url.searchParams)
    const values = body ? JSON.parse(body) : { session_id, scope: { type, scope_id }, ...query }
    return rows.run({ ...values, operation, if_match, if_none_match })
  }

  return createServer(async (request, response) => {
    const isCall = request.url?.startsWith('/2015-03-31/functions/')
    try {
      send(response, await (isCall ? answerCall(request) : answerRest(request)))
    } catch (error) {
      const json = JSON.stringify({ error: (error as Error).message })
      // Lambda reports the failure of a function in a header; the status stays 200.
      if (isCall) response.setHeader('X-Amz-Function-Error', 'Unhandled')
      send(response, { status: isCall ? 200 : 400, json })
    }
  })
}

function send(response: ServerResponse, { status, json, etag }: Answer): void {
  if (etag) response.setHeader('ETag', etag)
  response.writeHead(status, { 'Content-Type': 'application/json' }).end(json)
}

if (process.argv[1] === import.meta.filename) {
  const value = { type: 'string' } as const
  const options = { port: value, db: value, token: value, strict: { type: 'boolean' } } as const
  const { port, db, token, strict } = parseArgs({ options }).values
  const server = createEndpoint(db, token, strict).listen(Number(port ?? 0), '127.0.0.1', () => {
    console.log(`Listening on http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  })
}
