// The process that serves the agent: its listener, its signals and its end.

import { once } from 'node:events'
import { flushCompileCache } from 'node:module'
import type { AddressInfo } from 'node:net'
import { exit } from 'node:process'
import { setTimeout as sleep } from 'node:timers/promises'

import { createHttpServer, listen } from './connection.ts'
import { announce, logging, surviveLateErrors } from '../log.ts'
import { takeOver } from './reload.ts'
import type { App } from '../capability.ts'
import type { Routes } from '../modules.ts'
import { type Runtime, startRuntime } from '../runtime.ts'
import { createApp } from './server.ts'
import { isLoopback } from '../settings.ts'

/** Serve the agent over HTTP on HOST and PORT until a signal ends it. */
export async function serve(app: App): Promise<void> {
  logging.isVerbose = true
  const runtime = await startRuntime(app)
  const work = async () => run(runtime, await app.load.routes())
  await work().finally(() => runtime.close()) // also when the start fails
}

async function run(runtime: Runtime, routes: Routes): Promise<void> {
  const { settings, turns } = runtime
  const { host, apiToken, shutdownGraceSeconds } = settings
  const signalled = new Promise((resolve) => {
    for (const name of ['SIGTERM', 'SIGINT']) {
      process.on(name, () => (turns.isDraining ? exit(1) : resolve(name)))
    }
  })
  const server = createHttpServer(createApp(runtime, routes), settings)
  await listen(server, settings)
  process.exit = (code) => {
    throw new Error(`process.exit(${code})`) // in a tool it would end the turns of all sessions
  }
  const handOver = takeOver(runtime.sessions.store) // before the first request is read
  if (!isLoopback(settings) && !apiToken) {
    const place = `${host} is reachable from other machines`
    announce(`Warning: ${place}, and callers are not authenticated.`)
  }
  const name = host.includes(':') ? `[${host}]` : host
  const address = `http://${name}:${(server.address() as AddressInfo).port}`
  const lines = [...(await runtime.describe(address)), `Listening on ${address}`]
  lines.forEach(announce)
  flushCompileCache() // a process that is killed writes none, and the next start is as slow
  // If nobody reads the log, the agent goes on: logging that error would fail again.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})
  surviveLateErrors()
  await signalled
  await turns.drain(shutdownGraceSeconds)
  await runtime.close()
  handOver()
  const closed = once(server.close(), 'close')
  await Promise.race([closed, sleep(1000)]) // for clients that do not read their answer
  exit(0) // a tool or a vendor's client that hangs would keep the process alive
}
