// Instances of the agent at one reference endpoint, which can fail.

import { once } from 'node:events'
import { mkdtempSync } from 'node:fs'
import type { RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'

import type { Mirror } from '../src/memory/mirror.ts'
import { collection } from '../src/memory/models.ts'
import { createOptions } from '../src/memory/options.ts'
import { Secrets } from '../src/memory/secrets.ts'
import { Cached, StoredSessions } from '../src/memory/stored.ts'
import { buildBackend } from '../src/memory/stores.ts'
import { Client } from './client.ts'
import { createEndpoint } from './reference_endpoint.ts'
import type { Step } from './scripted_model.ts'

const NAMES = { spec_version: '1.2', collection_id: 'sessions', version: '1.0.0' }
const META = { name: 'Sessions', description: 'Keeps sessions.', owner: 'tests' }
const RULES = { status: 'active', scope: { lifetime: 'project' }, writeback: { enabled: true } }

export type Kept = { app_data: object; [name: string]: unknown }

/** An endpoint that can fail: before it does what it is asked for, after that, or by being late. */
type Endpoint = {
  url: string
  fail: readonly [before: boolean, after: boolean, time: number] | null
  damage: (change: (kept: Kept) => string) => void
}

/** Use an endpoint that ends with the test. */
export async function withEndpoint(use: (endpoint: Endpoint) => Promise<void>): Promise<void> {
  const file = join(mkdtempSync(join(tmpdir(), 'sessions-')), 'kept.db')
  const server = createEndpoint(file)
  const [answer] = server.listeners('request') as [RequestListener]
  server.removeAllListeners('request').on('request', async (request, response) => {
    const [before, after, time] = endpoint.fail ?? [false, false, 0]
    await sleep(time)
    if (before) request.destroy()
    if (after) response.end = () => response.destroy()
    if (!before) answer(request, response)
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  const endpoint: Endpoint = {
    url: `http://127.0.0.1:${port}`,
    fail: null,
    damage(change) {
      const db = new DatabaseSync(file)
      const row = db.prepare("SELECT json FROM kept WHERE id = 'latest'").get()
      const bad = change(JSON.parse(String(row?.json)))
      db.prepare("UPDATE kept SET json = ?, etag = '\"e\"' WHERE id = 'latest'").run(bad)
      db.close()
    },
  }
  try {
    await use(endpoint)
  } finally {
    server.close().closeAllConnections()
  }
}

/** An instance of the agent, as another process would be. */
export function replica(
  { url }: Endpoint,
  script: Step[] = [],
  { isWritable = true, timeout = 5000 } = {},
) {
  const client = new Client(script)
  const credentials = { scheme: 'none' }
  const transport = { type: 'rest-api', base_url: url, credentials, timeout_ms: timeout }
  const more = { meta: META, backend: { type: 'custom', transport } }
  const options = createOptions({ maxSnapshotBytes: 8000 })
  const declared = collection.parse({ ...NAMES, ...RULES, ...more })
  const store = buildBackend(declared, 'agent', options, new Secrets(options))
  const copies: string[] = []
  const copy = { put: () => copies.push('put'), end: () => copies.push('end') }
  const { settings } = client.parts
  const role = { isWritable, mirrors: [copy as unknown as Mirror] }
  const cached = new Cached(settings, options, store, role)
  Object.assign(client.parts, { sessions: new StoredSessions(settings, cached) })
  return Object.assign(client, { store, copies })
}
