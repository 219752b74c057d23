// The commands of the agent, and the process that serves it.

import { once } from 'node:events'
import { enableCompileCache } from 'node:module'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { exit } from 'node:process'
import { setTimeout as sleep } from 'node:timers/promises'
import { getSystemErrorMessage, parseArgs } from 'node:util'

import { createHttpServer } from './connection.ts'
import { describe, log, logging } from './contract.ts'
import { checkAnswers } from './copier_answers.ts'
import { CommandError, diagnostic, formatFinding, isLoopback } from './settings.ts'
import { readSettings, type Settings } from './settings.ts'
import { start } from './start.ts'

const USAGE = `Usage: node src/main.ts COMMAND

  serve [--reload]                  serve the agent over HTTP on HOST and PORT, anew after a change
  chat [--session ID] [--actor ID]  talk to the agent here, also line by line from a pipe
  check [--json]                    report errors in the settings`

// Modules that load a framework or a client are imported by the command that needs them.
const chat: typeof serve = async (args) => (await import('./chat.ts')).chat(args)
const COMMANDS = new Map(Object.entries({ serve, chat, check }))

/** Report errors in the settings; exit with 1 if there is one. */
async function check(args: string[]): Promise<void> {
  const { json } = parseArgs({ args, options: { json: { type: 'boolean' } } }).values
  const { Runtime } = await import('./runtime.ts')
  const [settings, findings] = readSettings()
  findings.push(...(await Runtime.check(settings)))
  findings.push(...checkAnswers())
  const probe = createServer()
  try {
    await listen(probe, settings)
    probe.close()
  } catch (error) {
    const { message, cause } = error as Error & { cause: { code: string } }
    const isTaken = cause.code === 'EADDRINUSE' // by this agent, perhaps
    if (!isTaken) findings.push(diagnostic('SET-HOST', message))
  }
  const errors = findings.filter(({ severity }) => severity === 'error').length
  const warnings = findings.length - errors
  const lines = [...findings.map(formatFinding), `${errors} errors, ${warnings} warnings`]
  const report = { diagnostics: findings, errors, warnings }
  console.log(json ? JSON.stringify(report) : lines.join('\n'))
  process.exitCode = Math.min(errors, 1)
}

async function listen(server: Server, { host, port }: Settings): Promise<void> {
  try {
    await once(server.listen(port, host), 'listening')
  } catch (error) {
    const why = getSystemErrorMessage((error as { errno: number }).errno)
    const message = `Cannot listen on HOST ${host}, PORT ${port}: ${why}.`
    throw Object.assign(new CommandError(message), { cause: error })
  }
}

/** Serve the agent over HTTP on HOST and PORT. */
async function serve(args: string[]): Promise<void> {
  const { reload } = parseArgs({ args, options: { reload: { type: 'boolean' } } }).values
  const { serveAnew, takeOver } = await import('./reload.ts')
  if (reload) return serveAnew()
  logging.isVerbose = true
  const { createApp, Turns } = await import('./server.ts')
  const tracing = await import('./tracing.ts')
  const [runtime, turns] = [await start(), new Turns()]
  const { host, shutdownGraceSeconds } = runtime.settings
  const signalled = new Promise((resolve) => {
    for (const name of ['SIGTERM', 'SIGINT']) {
      process.on(name, () => (turns.isDraining ? exit(1) : resolve(name)))
    }
  })
  await tracing.openTracing()
  const app = tracing.withCaller(createApp(runtime, turns))
  const server = createHttpServer(app, runtime.settings)
  await listen(server, runtime.settings)
  process.exit = (code) => {
    throw new Error(`process.exit(${code})`) // in a tool it would end the turns of all sessions
  }
  const handOver = takeOver(runtime.sessions.store) // before the first request is read
  if (!isLoopback(runtime.settings) && !runtime.settings.apiToken) {
    const place = `${host} is reachable from other machines`
    console.log(`Warning: ${place}, and callers are not authenticated.`)
  }
  const [name, address] = [host.includes(':') ? `[${host}]` : host, server.address() as AddressInfo]
  const listening = `Listening on http://${name}:${address.port}`
  for (const line of tracing.describeTracing()) console.log(line)
  console.log([...(await runtime.describeEndpoints()), listening].join('\n'))
  process.on('uncaughtException', logUncaught)
  await signalled
  await turns.drain(shutdownGraceSeconds)
  await runtime.close()
  handOver()
  await tracing.closeTracing()
  const closed = once(server.close(), 'close')
  await Promise.race([closed, sleep(1000)]) // for clients that do not read their answer
  exit(0) // a tool or a vendor's client that hangs would keep the process alive
}

/** Log what a listener, a timer or a promise of nobody threw: the turns of others go on. */
function logUncaught(error: unknown): void {
  log('ERROR', `uncaught: ${describe(error)}`)
}

enableCompileCache() // the next start compiles nothing anew
const [command = '', ...rest] = process.argv.slice(2)
try {
  const asksHelp = process.argv.includes('--help')
  const run = asksHelp ? () => console.log(USAGE) : COMMANDS.get(command)
  const what = command ? `No such command '${command}'.` : 'Missing command.'
  if (!run) throw new CommandError(`${what}\n${USAGE}`, 2)
  await run(rest)
} catch (error) {
  const { code = '', message } = error as { code?: string; message: string }
  const isUsage = String(code).startsWith('ERR_PARSE_ARGS')
  process.off('uncaughtException', logUncaught)
  if (!isUsage && !(error instanceof CommandError)) throw error
  console.error(`Error: ${message}`)
  exit(error instanceof CommandError ? error.exitCode : 2)
}
