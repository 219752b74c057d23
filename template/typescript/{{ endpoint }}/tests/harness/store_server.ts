// An endpoint for the tests: the reference endpoint, or your own at TEST_STORE_ADDRESS.

import { once } from 'node:events'
import type { AddressInfo } from 'node:net'

import { createEndpoint } from './reference_endpoint.ts'

const token = { scheme: 'bearer-token', source: 'env', name: 'TEST_TOKEN' }
const rest = { type: 'rest-api', base_url: 'env:TEST_STORE', credentials: token }
const transport = { ...rest, timeout_ms: 30_000 }
export const backend = { type: 'custom', transport }
/** An unreachable backend. */
export const broken = { ...backend, transport: { ...transport, base_url: 'http://127.0.0.1:2' } }

/** Start the endpoint. Your own endpoint must accept the bearer token in TEST_TOKEN. */
export async function startServer(): Promise<{ missing: string; stop: () => void }> {
  process.env.TEST_TOKEN ||= 'hunter2'
  process.env.TEST_STORE = process.env.TEST_STORE_ADDRESS
  if (process.env.TEST_STORE_ADDRESS) return { missing: '', stop: () => {} }
  const server = createEndpoint(':memory:', process.env.TEST_TOKEN, true).listen(0, '127.0.0.1')
  await once(server, 'listening')
  process.env.TEST_STORE = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return { missing: '', stop: () => server.close().closeAllConnections() }
}
