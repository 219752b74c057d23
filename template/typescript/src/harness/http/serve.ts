// The server process: its listener, signals and shutdown.

import { once } from 'node:events'
import { flushCompileCache } from 'node:module'
import type { AddressInfo } from 'node:net'
import { exit } from 'node:process'
import { setTimeout as sleep } from 'node:timers/promises'

import { createHttpServer, listen } from './connection.ts'
import { announce, logging, surviveLateErrors } from '../log.ts'
import { takeOver, watchParent } from './reload.ts'
import type { App } from '../capability.ts'
import type { Routes } from '../modules.ts'
import { type Runtime, startRuntime } from '../runtime.ts'
import { createApp } from './server.ts'
import { isLoopback } from '../settings.ts'

/** Signals that follow the first sooner are copies: a parent forwards those of its group. */
const REPEAT_MILLISECONDS = 1000

/** Serve until a signal arrives. */
export async function serve(app: App): Promise<void> {
  logging.isVerbose = true
  const isOrphan = watchParent()
  const runtime = await startRuntime(app)
  const work = async () => run(runtime, await app.load.routes(), isOrphan)
  await work().finally(() => runtime.close()) // even if the start fails
}

async function run(runtime: Runtime, routes: Routes, isOrphan: () => boolean): Promise<void> {
  const { settings, turns } = runtime
  const { host, apiToken, shutdownGraceSeconds } = settings
  const signalled = new Promise<void>((resolve) => {
    let signalledAt = Infinity
    for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP']) {
      process.on(name, () => {
        const now = performance.now()
        if (now - signalledAt >= REPEAT_MILLISECONDS) exit(1)
        signalledAt = Math.min(signalledAt, now)
        resolve()
      })
    }
    setInterval(() => isOrphan() && resolve(), 500).unref()
  })
  const server = createHttpServer(createApp(runtime, routes), settings)
  await listen(server, settings)
  process.exit = (code) => {
    throw new Error(`process.exit(${code})`) // a tool's exit would end all turns
  }
  const handOver = takeOver(runtime.sessions.store) // must precede the first request
  if (!isLoopback(settings) && !apiToken) {
    const risk = `other machines can reach ${host}, and callers are not authenticated`
    announce(`Warning: ${risk}: set API_TOKEN.`)
  }
  const name = host.includes(':') ? `[${host}]` : host
  const address = `http://${name}:${(server.address() as AddressInfo).port}`
  const lines = [...(await runtime.describe(address)), `Listening on ${address}`]
  lines.forEach(announce)
  flushCompileCache() // a killed process writes no cache for the next start
  // Ignore errors of the log, because logging them would fail again.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})
  surviveLateErrors()
  await signalled
  // With its next connection, a client reaches a replica.
  setInterval(() => server.closeIdleConnections(), 100).unref()
  await turns.drain(shutdownGraceSeconds)
  await runtime.close()
  handOver()
  const closed = once(server.close(), 'close')
  await Promise.race([closed, sleep(1000)]) // for clients that do not read
  exit(0) // a hanging tool or vendor's client would keep the process alive
}
