// The commands: serve, chat and check.

import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { getSystemErrorMessage, parseArgs } from 'node:util'

import { ACTOR_ID, AgentError, checkPrompt, ERRORS, logging, SESSION_ID } from './contract.ts'
import { Parts } from './parts.ts'
import { createApp, Turns } from './server.ts'
import { isLoopback, readSettings } from './settings.ts'
import { takeTurn } from './turn.ts'

const USAGE = `Usage: node src/main.ts COMMAND

  serve                             serve the agent over HTTP on HOST and PORT
  chat [--session ID] [--actor ID]  talk to the agent here, also line by line from a pipe
  check [--json]                    say what is wrong with the settings`

// All control characters but tab and line feed.
const CONTROL = /(?![\t\n])\p{Cc}/gu

/** The parts of this process; an error in the settings keeps it from starting. */
async function start(): Promise<Parts> {
  const [settings, found] = readSettings()
  found.push(...(await Parts.check(settings)))
  const errors = found.filter((one) => one.severity === 'error')
  if (errors.length > 0) refuse(errors.map((one) => one.message).join('\n'))
  if (settings.model === 'offline') {
    console.log('The offline model answers. It is no language model; README.md names others.')
  }
  return new Parts(settings)
}

/** Say what is wrong with the settings; exit with 1 for an error. */
async function check(asJson: boolean): Promise<void> {
  const [settings, found] = readSettings()
  found.push(...(await Parts.check(settings)))
  const errors = found.filter((one) => one.severity === 'error').length
  const warnings = found.length - errors
  if (asJson) {
    console.log(JSON.stringify({ diagnostics: found, errors, warnings }))
  } else {
    const lines = found.map((one) => `${one.file}:${one.line} ${one.id} ${one.message}`)
    console.log([...lines, `${errors} errors, ${warnings} warnings`].join('\n'))
  }
  process.exitCode = Math.min(errors, 1)
}

/** Talk to the agent here, also line by line from a pipe. */
async function chat(sessionId: string, actor: string | null): Promise<void> {
  if (!SESSION_ID.test(sessionId)) refuse(ERRORS.invalid_session_id[1], 2)
  if (actor !== null && !ACTOR_ID.test(actor)) refuse(ERRORS.invalid_actor[1], 2)
  const parts = await start()
  const [isPiped, stop] = [!process.stdin.isTTY, new AbortController()]
  const output = isPiped ? undefined : process.stdout
  const lines = createInterface({ input: process.stdin, output, prompt: '> ' })
  lines.once('SIGINT', () => stop.abort(lines.close()))
  const say = (text: string): unknown => process.stdout.write(text)
  const ask = () => (isPiped ? say('> ') : lines.prompt())
  // Without control characters, which could move the cursor or retitle the window.
  const emit = async (chunk: string) => void say(chunk.replace(CONTROL, ''))
  let [done, failed] = [0, 0]
  ask()
  for await (const line of lines) {
    if (isPiped) say(`${line}\n`)
    try {
      const prompt = checkPrompt(line, parts.settings.maxPromptChars)
      await takeTurn(parts, { sessionId, actor, key: null, prompt }, emit, stop.signal)
      done++
      say('\n')
    } catch (error) {
      if (stop.signal.aborted) break
      if (!(error instanceof AgentError)) throw error
      failed++
      const cause = error.cause instanceof Error ? error.cause.message : ''
      say(`${error.message} (${cause || error.detail || error.type})\n`)
    }
    ask()
  }
  await parts.close()
  say(`\nThis was session ${sessionId}. ${done > 0 ? parts.kept : 'It had no new turn.'}\n`)
  process.exit(isPiped && failed > 0 ? 1 : 0)
}

/** Serve the agent over HTTP on HOST and PORT. */
async function serve(): Promise<void> {
  logging.isVerbose = true
  const [parts, turns] = [await start(), new Turns()]
  const { host, port, shutdownGraceSeconds } = parts.settings
  const signalled = new Promise((resolve) => {
    for (const name of ['SIGTERM', 'SIGINT']) {
      process.on(name, () => (turns.isDraining ? process.exit(1) : resolve(name)))
    }
  })
  const server = createServer(createApp(parts, turns))
  try {
    await once(server.listen(port, host), 'listening')
  } catch (error) {
    const why = getSystemErrorMessage((error as { errno: number }).errno)
    refuse(`Cannot listen on HOST ${host}, PORT ${port}: ${why}.`)
  }
  if (!isLoopback(parts.settings)) {
    console.log(`Warning: HOST ${host} is open to other machines, and callers are believed.`)
  }
  const [name, address] = [host.includes(':') ? `[${host}]` : host, server.address() as AddressInfo]
  const listening = `Listening on http://${name}:${address.port}`
  console.log([...(await parts.contacts()), listening].join('\n'))
  await signalled
  await turns.drain(shutdownGraceSeconds)
  await parts.close()
  const closed = once(server.close(), 'close')
  await Promise.race([closed, sleep(1000)]) // for clients that do not read what was answered
  process.exit(0) // a tool or a vendor's client that hangs would keep the process
}

function refuse(message: string, code = 1): never {
  console.error(`Error: ${message}`)
  process.exit(code)
}

/** Run the command; throws for an option that it does not have. */
async function run([command, ...args]: string[]): Promise<void> {
  const [text, flag] = [{ type: 'string' }, { type: 'boolean' }] as const
  if (command === 'serve') {
    parseArgs({ args })
    await serve()
  } else if (command === 'chat') {
    const { session, actor } = parseArgs({ args, options: { session: text, actor: text } }).values
    await chat(session ?? randomUUID(), actor ?? null)
  } else if (command === 'check') {
    await check(parseArgs({ args, options: { json: flag } }).values.json ?? false)
  } else {
    refuse(`${command ? `No such command '${command}'.` : 'Missing command.'}\n${USAGE}`, 2)
  }
}

run(process.argv.slice(2)).catch((error) => {
  if (!error.code?.startsWith('ERR_PARSE_ARGS')) throw error
  refuse(error.message, 2)
})
