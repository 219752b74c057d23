// Endpoints that play a script, and the stores of collections that declare them.

import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { mock } from 'node:test'

import { CustomStore } from '../src/memory/custom_store.ts'
import { type Collection, collection } from '../src/memory/models.ts'
import { createOptions } from '../src/memory/options.ts'
import { Secrets } from '../src/memory/secrets.ts'
import { InProcess, Sessions } from '../src/sessions.ts'
import { Client } from './client.ts'

export const ARN = 'arn:aws:lambda:eu-west-1:123456789012:function:memory'
export const ID = '01890000-0000-7000-8000-000000000000'
export const OPTIONS = createOptions({ maxSnapshotBytes: 100_000 })
const KEPT = { scope: 'agent', schema_version: '1.0', created_at: '2026-05-01T10:00:00Z' }
const DATA = { state: {}, ...(await committed()) }
const LAST = { actor: null, turn: 1, key: 'k', reply: 'é' }
export const SNAPSHOT = JSON.stringify({ ...KEPT, data: DATA, app_data: LAST })
export const SENT = { ...KEPT, data: { ...DATA, system_prompt: null }, app_data: LAST }

export type Step = [status: number, headers: Record<string, string>, body: string]
export type Asked = { route: string; headers: NodeJS.Dict<string | string[]>; body: unknown }

mock.method(console, 'error', () => {}) // the log

/** The data of a snapshot that a turn commits. */
async function committed(): Promise<object> {
  const client = new Client([['é']])
  const store = new InProcess(client.parts.settings)
  Object.assign(client.parts, { sessions: new Sessions(client.parts.settings, store) })
  await client.say('s', 'é')
  return JSON.parse((await store.load('s')) ?? '').data
}

/** Do the work with the address of a server that runs meanwhile. */
export async function serving(server: Server, work: (url: string) => Promise<void>): Promise<void> {
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}`
  Object.assign(process.env, { AWS_ENDPOINT_URL_LAMBDA: url, AWS_ACCESS_KEY_ID: 'a' })
  process.env.AWS_SECRET_ACCESS_KEY = 'b'
  try {
    await work(url)
  } finally {
    server.closeAllConnections()
    server.close()
  }
}

/** A server that plays a script and notes what it was asked. */
export function scripted(script: Step[], asked: Asked[] = []): Server {
  const answer: RequestListener = async (request, response) => {
    const { method, url, headers } = request
    asked.push({
      route: `${method} ${url}`,
      headers,
      body: JSON.parse((await text(request)) || '0'),
    })
    const [status, more, body] = script.shift() ?? [500, {}, '']
    response.writeHead(status, more).end(body)
  }
  return createServer(answer)
}

/** A collection with the endpoint at a URL, or the function ARN. */
export function declare(url: string, more: object = {}): Collection {
  const place = { type: 'rest-api', base_url: url, credentials: { scheme: 'none' } }
  const aws = { type: 'lambda', function_arn: ARN, credentials: { scheme: 'iam-role' } }
  const transport = { ...(url === ARN ? aws : place), timeout_ms: 2000, ...more }
  return collection.parse({
    spec_version: '1.2',
    collection_id: 'sessions',
    version: '1.0.0',
    status: 'active',
    meta: { name: 'n', description: 'd', owner: 'o' },
    scope: { lifetime: 'project' },
    backend: { type: 'custom', transport },
    writeback: { enabled: true },
  })
}

/** The store of that collection. */
export function storeAt(url: string, more: object = {}): CustomStore {
  return new CustomStore(declare(url, more), 'a', OPTIONS, new Secrets(OPTIONS))
}
