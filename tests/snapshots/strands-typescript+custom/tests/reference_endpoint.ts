// A custom backend to try and to learn from: `node tests/reference_endpoint.ts --port 8081`.
//
// It speaks REST and the wire of AWS Lambda. An ETag is new at each save, which can name another.
// With `--strict` it keeps only the fields that the specification shows.

import { randomUUID } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { DatabaseSync } from 'node:sqlite'
import { text } from 'node:stream/consumers'
import { parseArgs } from 'node:util'

type Answer = [status: number, json: string, etag?: string | null]
type Ask = { [field: string]: unknown; scope?: Ask }

const ID = '[A-Za-z0-9][A-Za-z0-9._-]{0,299}'
const UUID7 = '[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}'
const REST: Record<string, string> = {
  'POST /snapshots': 'save_snapshot',
  'GET /snapshots': 'load_snapshot',
  'GET /snapshots/list': 'list_snapshot_ids',
  'DELETE /sessions': 'delete_session',
  'POST /manifests': 'save_manifest',
  'GET /manifests': 'load_manifest',
}
const TABLE = 'CREATE TABLE IF NOT EXISTS kept(sid, scope, id, etag, json, UNIQUE(sid, scope, id))'
const [HERE, OK] = ['FROM kept WHERE sid = ? AND scope = ?', '{"ok": true}']
const OLD = `SELECT rowid ${HERE} AND id LIKE '%-%' ORDER BY id DESC LIMIT -1 OFFSET 1000`

/** The fields that the specification shows. */
function documented({ data, schema_version, created_at }: any): object {
  const { messages, state, system_prompt } = data
  return { data: { messages, state, system_prompt }, schema_version, created_at }
}

/** The endpoint as a server that does not listen yet; without a token it asks for none. */
export function createEndpoint(file = ':memory:', token = '', isStrict = false): Server {
  const db = new DatabaseSync(file)
  db.exec(TABLE)

  // Nothing here waits, so that no other request comes between a comparison and its save.
  function run(ask: Ask): Answer {
    const [operation, session] = [take(ask, 'operation'), take(ask, 'session_id')]
    if (operation === 'delete_session') {
      db.prepare('DELETE FROM kept WHERE sid = ?').run(session)
      return [200, OK]
    }
    const here = [session, `${take(ask.scope, 'type')}/${take(ask.scope, 'scope_id')}`]
    const [verb, what = ''] = operation.split('_')
    if (operation === 'list_snapshot_ids') {
      const page = [String(ask.start_after ?? ''), Math.min(Number(ask.limit ?? 1000), 1000)]
      const select = `SELECT id ${HERE} AND id LIKE '%-%' AND id > ? ORDER BY id LIMIT max(0, ?)`
      const ids = db.prepare(select).all(...here, ...page)
      return [200, JSON.stringify({ snapshot_ids: ids.map(({ id }) => id) })]
    }
    const id = what === 'manifest' ? what : take(ask, 'snapshot_id', `latest|${UUID7}`)
    const row = db.prepare(`SELECT etag, json ${HERE} AND id = ?`).get(...here, id)
    const [old, kept] = row ? [String(row.etag), String(row.json)] : [null, 'null']
    if (verb === 'load') return [old && ask.if_none_match === old ? 304 : 200, kept, old]
    if (verb !== 'save' || typeof ask[what] !== 'object') throw new TypeError(`${what} is missing`)
    const value = isStrict && what === 'snapshot' ? documented(ask[what]) : ask[what]
    const [etag, json] = [`"${randomUUID()}"`, JSON.stringify(value)]
    if (id.includes('-') && old) {
      // A checkpoint never changes; the same one again is a retry.
      return json === kept ? [200, OK, old] : [409, '{"ok": false}', old]
    }
    const { if_match: match, if_none_match: noneMatch } = ask
    if ((typeof match === 'string' && match !== old) || (noneMatch === '*' && old)) {
      return [412, '{"ok": false, "error": "conflict"}', old]
    }
    db.prepare('REPLACE INTO kept VALUES (?, ?, ?, ?, ?)').run(...here, id, etag, json)
    db.prepare(`DELETE FROM kept WHERE rowid IN (${OLD})`).run(...here) // 1000 checkpoints stay
    return [200, OK, etag]
  }

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const [body, url] = [await text(request), new URL(request.url ?? '', 'http://endpoint')]
    if (url.pathname.startsWith('/2015-03-31/functions/')) {
      // AWS checks who calls a function, and the answer of one has no status and no headers.
      const [, json, etag] = run(JSON.parse(body))
      return send(response, [200, etag ? JSON.stringify({ ...JSON.parse(json), etag }) : json])
    }
    const { authorization, 'if-match': match, 'if-none-match': noneMatch } = request.headers
    if (token && authorization !== `Bearer ${token}`) {
      return send(response, [401, '{"error": "the token is missing or wrong"}'])
    }
    const [, first = '', last = ''] = url.pathname.split('/')
    const path = first === 'sessions' ? '/sessions' : url.pathname
    const operation = REST[`${request.method} ${path}`]
    if (!operation) return send(response, [404, '{"error": "no such operation"}'])
    const { scope_type: type, scope_id, ...query } = Object.fromEntries(url.searchParams)
    const told = { session_id: last, scope: { type, scope_id }, ...query }
    const asked = body ? JSON.parse(body) : told
    send(response, run({ ...asked, operation, if_match: match, if_none_match: noneMatch }))
  }

  return createServer((request, response) => {
    answer(request, response).catch((error: Error) => {
      // A function that fails says so in a header; its status is that of the call.
      const isFunction = request.url?.startsWith('/2015-03-31/functions/')
      if (isFunction) response.setHeader('X-Amz-Function-Error', 'Unhandled')
      send(response, [isFunction ? 200 : 400, JSON.stringify({ error: error.message })])
    })
  })
}

/** A text that a request must hold. */
function take(ask: Ask | undefined, name: string, pattern = ID): string {
  const value = ask?.[name]
  if (typeof value === 'string' && new RegExp(`^(${pattern})$`).test(value)) return value
  throw new TypeError(`${name} is missing or not valid`)
}

function send(response: ServerResponse, [status, json, etag]: Answer): void {
  if (etag) response.setHeader('ETag', etag)
  response.writeHead(status, { 'Content-Type': 'application/json' }).end(json)
}

if (process.argv[1] === import.meta.filename) {
  const given = { type: 'string' } as const
  const { port, db, token, strict } = parseArgs({
    options: { port: given, db: given, token: given, strict: { type: 'boolean' } },
  }).values
  const server = createEndpoint(db, token, strict).listen(Number(port ?? 0), '127.0.0.1', () => {
    console.log(`Listening on http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  })
}
