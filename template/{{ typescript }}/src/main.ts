// The commands: serve, chat and check.

import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { getSystemErrorMessage, parseArgs } from 'node:util'

import { createAdaptorServer } from '@hono/node-server'

import { ACTOR_ID, AgentError, checkPrompt, ERRORS, SESSION_ID } from './contract.ts'
import { Parts } from './parts.ts'
import { createApp, Turns } from './server.ts'
import { type Diagnostic, readSettings, type Settings } from './settings.ts'
import { takeTurn } from './turn.ts'

const USAGE = `Usage: node src/main.ts COMMAND

  serve                             serve the agent over HTTP on HOST and PORT
  chat [--session ID] [--actor ID]  talk to the agent here, also line by line from a pipe
  check [--json]                    say what is wrong with the settings`

/** Say what is wrong and leave. */
function refuse(message: string, code = 1): never {
  console.error(`Error: ${message}`)
  process.exit(code)
}

/** The settings, and what is wrong with them and with the files of the parts. */
async function diagnose(): Promise<[Settings, Diagnostic[]]> {
  let settings: Settings, found: Diagnostic[]
  try {
    ;[settings, found] = readSettings()
  } catch (error) {
    refuse(`The file .env cannot be read: ${(error as Error).message}.`)
  }
  return [settings, [...found, ...(await Parts.check(settings))]]
}

/** The parts of this process; an error in the settings keeps it from starting. */
async function start(): Promise<Parts> {
  const [settings, found] = await diagnose()
  const errors = found.filter((one) => one.severity === 'error')
  if (errors.length > 0) refuse(errors.map((one) => one.message).join('\n'))
  if (settings.model === 'offline') {
    console.log('The offline model answers. It is no language model; README.md names others.')
  }
  return new Parts(settings)
}

async function check(asJson: boolean): Promise<void> {
  const [, found] = await diagnose()
  const errors = found.filter((one) => one.severity === 'error').length
  const warnings = found.length - errors
  for (const one of asJson ? [] : found) {
    console.log(`${one.file}:${one.line} ${one.id} ${one.message}`)
  }
  const report = { diagnostics: found, errors, warnings }
  console.log(asJson ? JSON.stringify(report) : `${errors} errors, ${warnings} warnings`)
  process.exitCode = Math.min(errors, 1)
}

async function chat(sessionId: string, actor: string | null): Promise<void> {
  if (!SESSION_ID.test(sessionId)) refuse(ERRORS.invalid_session_id[1], 2)
  if (actor !== null && !ACTOR_ID.test(actor)) refuse(ERRORS.invalid_actor[1], 2)
  const parts = await start()
  const say = (text: string) => void process.stdout.write(text)
  const isPiped = !process.stdin.isTTY
  const stop = new AbortController()
  const output = isPiped ? undefined : process.stdout
  const lines = createInterface({ input: process.stdin, output, prompt: '> ' })
  const ask = () => (isPiped ? say('> ') : lines.prompt())
  lines.once('SIGINT', () => stop.abort(lines.close()))
  let failed = 0
  ask()
  for await (const line of lines) {
    if (isPiped) say(`${line}\n`)
    try {
      const prompt = checkPrompt(line, parts.settings.maxPromptChars)
      // Without control characters, which could move the cursor or retitle the window.
      const emit = async (chunk: string) => say(chunk.replace(CONTROL, ''))
      await takeTurn(parts, { sessionId, actor, key: null, prompt }, emit, stop.signal)
      say('\n')
    } catch (error) {
      if (stop.signal.aborted) break
      if (!(error instanceof AgentError)) throw error
      failed++
      const { cause, detail, type } = error
      say(`${error.message} (${cause instanceof Error ? cause.message : detail || type})\n`)
    }
    ask()
  }
  await parts.close()
  say(`\nThis was session ${sessionId}. ${parts.kept}\n`)
  process.exit(isPiped && failed > 0 ? 1 : 0)
}

// All of them but tab and line feed.
const CONTROL = /(?![\t\n])\p{Cc}/gu

async function serve(): Promise<void> {
  const parts = await start()
  const { settings } = parts
  const { host } = settings
  const turns = new Turns()
  const app = createApp(parts, turns)
  const server = createAdaptorServer({ fetch: app.fetch, overrideGlobalObjects: false })
  // Once: a second signal ends the process at once.
  const signalled = Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')])
  try {
    await once(server.listen(settings.port, host), 'listening')
  } catch (error) {
    const why = getSystemErrorMessage((error as { errno: number }).errno)
    refuse(`Cannot listen on HOST ${host}, PORT ${settings.port}: ${why}.`)
  }
  if (!settings.isLoopback) {
    console.log(`Warning: HOST ${host} is open to other machines, and callers are believed.`)
  }
  const { port } = server.address() as { port: number }
  const address = `${host.includes(':') ? `[${host}]` : host}:${port}`
  console.log([...(await parts.contacts()), `Listening on http://${address}`].join('\n'))
  await signalled
  await turns.drain(settings.shutdownGraceSeconds)
  await parts.close()
  const closed = once(server.close(), 'close')
  await Promise.race([closed, sleep(1000)]) // for clients that do not read what was answered
  process.exit(0) // a tool or a vendor's client that hangs would keep the process
}

const [command, ...rest] = process.argv.slice(2)
if (command === 'serve' || command === 'chat' || command === 'check') {
} else refuse(USAGE, 2)
