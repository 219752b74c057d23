// The command line of the agent.

import { existsSync } from 'node:fs'
import { enableCompileCache } from 'node:module'
import { createServer } from 'node:net'
import { join, sep } from 'node:path'
import { exit } from 'node:process'
import { parseArgs } from 'node:util'

import { COMMANDS, makeCapabilities, OPTIONS, SETTINGS } from './enabled.ts'
import { checkAll, checkModel, type Command, type Option } from './capability.ts'
import { listen } from './http/connection.ts'
import { CommandError, diagnostic, errorsOf, type Finding } from './findings.ts'
import { formatFinding, refuseErrors } from './findings.ts'
import { describe } from './log.ts'
import { readSettings } from './settings.ts'

// Modules that load a framework or a client are imported by the command that needs them.
const ALL: Record<string, Command> = {
  serve: {
    takes: '[--reload]',
    does: 'serve the agent on HOST and PORT; --reload restarts it after a change',
    run: serve,
  },
  chat: {
    takes: '[QUESTION] [--session ID]',
    does: 'talk to the agent here or from a pipe, or ask one question; as --actor ID',
    run: async (args) => (await import('./terminal/chat.ts')).chat(args),
  },
  ...COMMANDS,
  check: { takes: '[--json] [--connect]', does: 'report errors in settings and files', run: check },
}

/** Return the settings' capabilities, or end the command with the errors in the settings. */
async function loadCapabilities() {
  const [settings, findings] = readSettings(SETTINGS)
  refuseErrors(findings)
  return makeCapabilities(settings)
}

/** Serve the agent; with --reload in a process that is restarted after a change. */
async function serve(args: string[]): Promise<void> {
  const { reload } = readOptions('serve', ['reload'], args)
  if (reload) await (await import('./http/reload.ts')).serveWithReload()
  else await (await import('./http/serve.ts')).serve()
}

/** Report errors in settings and files; exit with 1 if there is one. */
async function check(args: string[]): Promise<void> {
  const { json, connect } = readOptions('check', ['json', 'connect'], args)
  const [settings, findings] = readSettings(SETTINGS)
  const capabilities = await makeCapabilities(settings)
  findings.push(...(await checkModel(settings)), ...(await checkAll(capabilities)))
  findings.push(...(await checkAgent()))
  if (connect && errorsOf(findings).length === 0) {
    const { callModel } = await import('./models/model_call.ts')
    findings.push(...(await callModel(settings, 'MODEL', settings.model)))
    findings.push(...(await checkAll(capabilities, 'ping')))
  }
  const probe = createServer()
  try {
    await listen(probe, settings)
    probe.close()
  } catch (error) {
    const { message, cause } = error as Error & { cause: { code: string } }
    const isTaken = cause.code === 'EADDRINUSE' // perhaps this agent is already running
    if (!isTaken) findings.push(diagnostic('SET-HOST', message))
  }
  const errors = errorsOf(findings).length
  const warnings = findings.length - errors
  const lines = [...findings.map(formatFinding), `${errors} errors, ${warnings} warnings`]
  const report = { diagnostics: findings, errors, warnings }
  console.log(json ? JSON.stringify(report) : lines.join('\n'))
  process.exitCode = Math.min(errors, 1)
  setTimeout(exit, 1000).unref() // a `ping` that hangs would keep the process alive
}

/** Return findings about the agent: names that other modules import, and its tools. */
async function checkAgent(): Promise<Finding[]> {
  const { checkTools, report } = await import('./tool_schemas.ts')
  const agent = await import('../agent.ts')
  const missing = ['SYSTEM_PROMPT', 'TOOLS'].filter((name) => !Object.hasOwn(agent, name))
  if (missing.length > 0) {
    return missing.map((name) => {
      return diagnostic('AGENT', `${name} is not exported.`, 'error', 'src/agent.ts')
    })
  }
  try {
    const { declarationsOf } = await import('./turn.ts')
    return checkTools(await declarationsOf(agent.TOOLS))
  } catch (error) {
    return [report(`The tools cannot be checked: ${describe(error)}.`)]
  }
}

/** Read the flags of a command, and set the variables of its other options. */
function readOptions(name: keyof typeof OPTIONS, flags: string[], args: string[]) {
  const own: [string, Partial<Option>][] = flags.map((flag) => [flag, {}])
  const all = [...own, ...Object.entries(OPTIONS[name])]
  const options = Object.fromEntries(
    all.map(([option, { takes }]) => [option, { type: takes ? 'string' : 'boolean' } as const]),
  )
  const { values } = parseArgs({ args, options })
  for (const [option, { variable }] of all) {
    const value = values[option]
    if (variable && value) process.env[variable] = value === true ? '1' : String(value)
  }
  return values
}

function usage(): string {
  const lines = Object.entries(ALL).flatMap(([name, { takes, does }]) => [
    [`${name} ${takes}`, does],
    ...Object.entries(OPTIONS[name as keyof typeof OPTIONS] ?? {}).map(([option, more]) => {
      return [`${name} --${option} ${more.takes ?? ''}`, more.does]
    }),
  ])
  const table = lines.map(([left = '', does]) => `  ${left.padEnd(34)}${does}`)
  return ['Usage: node src/main.ts COMMAND\n', ...table].join('\n')
}

/**
 * Work in the folder of the project, with its .env, also when started in a folder of it.
 *
 * A folder with settings or agents of its own is left alone.
 */
function enterProject(): void {
  const project = join(import.meta.dirname, '../..')
  const isInside = process.cwd().startsWith(project + sep)
  if (isInside && !existsSync('.env') && !existsSync('agents')) process.chdir(project)
}

enterProject()
enableCompileCache() // later starts reuse the compiled code
const [name = '', ...rest] = process.argv.slice(2)
try {
  const isKnown = Object.hasOwn(ALL, name)
  const what = name ? `No such command '${name}'.` : 'Missing command.'
  if (process.argv.includes('--help')) console.log(usage())
  else if (!isKnown) throw new CommandError(`${what}\n${usage()}`, 2)
  else await ALL[name]!.run(rest, loadCapabilities)
} catch (error) {
  const { code = '', message } = error as { code?: string; message: string }
  const isUsage = String(code).startsWith('ERR_PARSE_ARGS')
  if (!isUsage && !(error instanceof CommandError)) {
    process.removeAllListeners('uncaughtException') // this error ends the command
    throw error
  }
  console.error(`Error: ${message}`)
  exit(error instanceof CommandError ? error.exitCode : 2)
}
