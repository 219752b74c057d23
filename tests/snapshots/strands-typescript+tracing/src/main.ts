// The commands of the agent, and the process that serves it.

import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { getSystemErrorMessage, parseArgs } from 'node:util'

import { checkAnswers } from './answers.ts'
import { createHttpServer } from './connection.ts'
import { ACTOR_ID, AgentError, checkPrompt, CONTROL, ERRORS, logging } from './contract.ts'
import { SESSION_ID } from './contract.ts'
import type { Runtime } from './runtime.ts'
import { CommandError, diagnostic, formatFinding, isLoopback } from './settings.ts'
import { readSettings, refuseErrors, type Settings } from './settings.ts'

const USAGE = `Usage: node src/main.ts COMMAND

  serve                             serve the agent over HTTP on HOST and PORT
  chat [--session ID] [--actor ID]  talk to the agent here, also line by line from a pipe
  check [--json]                    report errors in the settings`

// Modules that load a framework or a client are imported by the command that needs them.
const COMMANDS = new Map(Object.entries({ serve, chat, check }))

/** Return the runtime of this process; refuse to start when `check` finds an error. */
async function start(): Promise<Runtime> {
  const { Runtime } = await import('./runtime.ts')
  const [settings, findings] = readSettings()
  refuseErrors([...findings, ...(await Runtime.check(settings))])
  if (settings.model === 'offline') {
    console.log('MODEL is not set: the offline model only echoes. See README.md to choose one.')
  }
  const runtime = new Runtime(settings)
  await runtime.open().catch((error) => {
    throw error instanceof AgentError ? new CommandError(error.detail) : error
  })
  return runtime
}

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

/** Talk to the agent here, also line by line from a pipe. */
async function chat(args: string[]): Promise<void> {
  const text = { type: 'string' } as const
  const { values } = parseArgs({ args, options: { session: text, actor: text } })
  const { session: sessionId = randomUUID() } = values
  const { actor = null } = values
  if (!SESSION_ID.test(sessionId)) throw new CommandError(ERRORS.invalid_session_id[1], 2)
  if (actor !== null && !ACTOR_ID.test(actor)) throw new CommandError(ERRORS.invalid_actor[1], 2)
  const [runtime, { takeTurn }] = [await start(), await import('./turn.ts')]
  const [isPiped, stop] = [!process.stdin.isTTY, new AbortController()]
  const output = isPiped ? undefined : process.stdout
  const lines = createInterface({ input: process.stdin, output, prompt: '> ' })
  lines.once('SIGINT', () => stop.abort(lines.close()))
  const print = (text: string): unknown => process.stdout.write(text)
  const showPrompt = () => (isPiped ? print('> ') : lines.prompt())
  const emit = async (chunk: string) => void print(chunk.replace(CONTROL, ''))
  let [done, failed] = [0, 0]
  showPrompt()
  for await (const line of lines) {
    if (isPiped) print(`${line}\n`)
    try {
      const prompt = checkPrompt(line, runtime.settings.maxPromptChars)
      await takeTurn(runtime, { sessionId, actor, key: null, prompt }, emit, stop.signal)
      done++
      print('\n')
    } catch (error) {
      if (stop.signal.aborted) break
      if (!(error instanceof AgentError)) throw error
      failed++
      const cause = error.cause instanceof Error ? error.cause.message : ''
      print(`${error.message} (${cause || error.detail || error.type})\n${await advise(error)}`)
    }
    showPrompt()
  }
  await runtime.close()
  const notice = done > 0 ? runtime.retentionNotice : 'It had no new turn.'
  print(`\nThis was session ${sessionId}. ${notice}\n`)
  process.exit(isPiped && failed > 0 ? 1 : 0)
}

/** Return a line that names the settings to look at when the model fails, or nothing. */
async function advise({ type, detail }: AgentError): Promise<string> {
  if (type !== 'model_failed') return ''
  const { ADDRESS, CREDENTIALS } = await import('./model.ts')
  const hints: [RegExp, string][] = [
    [/HTTP 40[13]|Credential/, CREDENTIALS],
    [/HTTP 40[04]/, `MODEL and ${ADDRESS}`],
    [/Connect|ECONN|ENOTFOUND|EAI_AGAIN/, `${ADDRESS} and the network`],
  ]
  const [, names] = hints.find(([form]) => form.test(detail)) ?? []
  return names ? `${detail}: look at ${names}.\n` : ''
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
  parseArgs({ args })
  logging.isVerbose = true
  const { createApp, Turns } = await import('./server.ts')
  const tracing = await import('./tracing.ts')
  const [runtime, turns] = [await start(), new Turns()]
  const { host, requestTimeoutSeconds, shutdownGraceSeconds } = runtime.settings
  const signalled = new Promise((resolve) => {
    for (const name of ['SIGTERM', 'SIGINT']) {
      process.on(name, () => (turns.isDraining ? process.exit(1) : resolve(name)))
    }
  })
  await tracing.openTracing()
  const app = tracing.withCaller(createApp(runtime, turns))
  const server = createHttpServer(app, requestTimeoutSeconds)
  await listen(server, runtime.settings)
  if (!isLoopback(runtime.settings) && !runtime.settings.apiToken) {
    const place = `${host} is reachable from other machines`
    console.log(`Warning: ${place}, and callers are not authenticated.`)
  }
  const [name, address] = [host.includes(':') ? `[${host}]` : host, server.address() as AddressInfo]
  const listening = `Listening on http://${name}:${address.port}`
  for (const line of tracing.describeTracing()) console.log(line)
  console.log([...(await runtime.describeEndpoints()), listening].join('\n'))
  await signalled
  await turns.drain(shutdownGraceSeconds)
  await runtime.close()
  await tracing.closeTracing()
  const closed = once(server.close(), 'close')
  await Promise.race([closed, sleep(1000)]) // for clients that do not read their answer
  process.exit(0) // a tool or a vendor's client that hangs would keep the process alive
}

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
  if (!isUsage && !(error instanceof CommandError)) throw error
  console.error(`Error: ${message}`)
  process.exit(error instanceof CommandError ? error.exitCode : 2)
}
