// A Valkey or Redis server for the tests: at TEST_STORE_ADDRESS, or started from PATH.

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

const OPTIONS = ['--bind', '127.0.0.1', '--save', '', '--appendonly', 'no']
const MISSING = 'set TEST_STORE_ADDRESS=valkey://127.0.0.1:6379, or install valkey-server'

export const backend = { type: 'valkey', endpoint_secret: 'env:TEST_STORE', key_prefix: 'test' }
/** An unreachable backend. */
export const broken = { ...backend, endpoint_secret: 'env:TEST_BROKEN' }

/** Start the server; `missing` is an instruction if no server is available, else ''. */
export async function startServer(): Promise<{ missing: string; stop: () => void }> {
  process.env.TEST_BROKEN = 'valkey://:hunter2@127.0.0.1:2'
  process.env.TEST_STORE = process.env.TEST_STORE_ADDRESS
  if (process.env.TEST_STORE_ADDRESS) return { missing: '', stop: () => {} }
  const port = await freePort()
  const server = (await run('valkey-server', port)) ?? (await run('redis-server', port))
  if (!server) return { missing: MISSING, stop: () => {} }
  process.env.TEST_STORE = `valkey://127.0.0.1:${port}`
  while (!(await isListening(port))) await sleep(20)
  return { missing: '', stop: () => server.kill() }
}

async function run(program: string, port: number): Promise<ChildProcess | null> {
  const server = spawn(program, ['--port', `${port}`, ...OPTIONS], { stdio: 'ignore' })
  return await once(server, 'spawn').then(
    () => server,
    () => null,
  )
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  await once(server.close(), 'close')
  return port
}

async function isListening(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  return await once(socket, 'connect').then(
    () => !socket.destroy().connecting,
    () => false,
  )
}
