// The command line of the agent.

import { existsSync } from 'node:fs'
import { enableCompileCache } from 'node:module'
import { createServer } from 'node:net'
import { dirname, sep } from 'node:path'
import { exit } from 'node:process'
import { parseArgs } from 'node:util'

import type { AgentApp } from './app.ts'
import { type App, type Capability, checkAll, type Command, type Option } from './capability.ts'
import { COMMANDS, OPTIONS, type Settings } from './enabled.ts'
import { listen } from './http/connection.ts'
import { CommandError, diagnostic, errorsOf, type Finding, formatFinding } from './findings.ts'
import { describe } from './log.ts'
import { type AgentModule, checkAgent, checkFinalTools, checkRoutes } from './modules.ts'

// Commands import frameworks and clients when they run, so that --help stays fast.
const ALL: Record<string, Command<Settings>> = {
  serve: {
    takes: '[--reload]',
    does: 'serve the agent over HTTP; --reload restarts it when a project file changes',
    run: serve,
  },
  chat: {
    takes: '[QUESTION] [--session ID] [--file PATH]',
    does: 'chat with the agent, or ask a question; --actor ID sets the actor',
    run: async (args, app) => (await import('./terminal/chat.ts')).chat(args, app),
  },
  ...COMMANDS,
  check: { takes: '[--json] [--connect]', does: 'report errors in settings and files', run: check },
}

/** Serve the agent over HTTP on HOST and PORT. */
async function serve(args: string[], app: App): Promise<void> {
  const { reload } = readOptions('serve', ['reload'], args)
  if (reload) {
    const { serveWithReload } = await import('./http/reload.ts')
    await serveWithReload(app.load.folder)
  } else {
    const { serve } = await import('./http/serve.ts')
    await serve(app)
  }
}

/** Report errors in settings and files; exit with 1 if any exist. */
async function check(args: string[], app: App): Promise<void> {
  const { json, connect } = readOptions('check', ['json', 'connect'], args)
  const [settings, findings] = app.readSettings()
  const capabilities = await app.makeCapabilities(settings)
  findings.push(...(await app.checkModel(settings)))
  findings.push(...(await checkAll(capabilities)))
  const agent = await app.load.agent()
  const { mistakesIn } = await import('./tools.ts')
  const mistakes = checkAgent(agent, mistakesIn)
  findings.push(...mistakes)
  if (mistakes.length === 0) findings.push(...(await checkOwnTools(agent, capabilities)))
  findings.push(...checkRoutes(await app.load.routes()))
  if (connect && errorsOf(findings).length === 0) {
    const { callModel } = await import('./models/model_call.ts')
    findings.push(...(await callModel(app.load, settings, 'MODEL', settings.model)))
    findings.push(...(await checkAll(capabilities, 'ping')))
  }
  const probe = createServer()
  try {
    await listen(probe, settings)
    probe.close()
  } catch (error) {
    const { message, cause } = error as Error & { cause: { code: string } }
    const isTaken = cause.code === 'EADDRINUSE' // this agent may be running
    if (!isTaken) findings.push(diagnostic('SET-HOST', message))
  }
  const errors = errorsOf(findings).length
  const warnings = findings.length - errors
  const lines = [...findings.map(formatFinding), `${errors} errors, ${warnings} warnings`]
  const report = { diagnostics: findings, errors, warnings }
  console.log(json ? JSON.stringify(report) : lines.join('\n'))
  process.exitCode = Math.min(errors, 1)
  setTimeout(exit, 1000).unref() // a hanging `ping` would keep the process alive
}

/** Return findings about the agent's own tools. */
async function checkOwnTools(
  agent: AgentModule,
  capabilities: readonly Capability[],
): Promise<Finding[]> {
  const { checkTools, report } = await import('./tool_schemas.ts')
  try {
    const { declarationsOf, describeTools, mergeTools } = await import('./tools.ts')
    const findings = checkTools(await declarationsOf(agent.TOOLS))
    // FINAL_TOOLS is checked at startup if capabilities load their tools in `open`.
    if (capabilities.some(({ open, tools }) => open && tools)) return findings
    const added = capabilities.flatMap((capability) => capability.tools?.() ?? [])
    const names = describeTools(mergeTools(agent.TOOLS, added)).map(([name]) => name)
    return [...findings, ...checkFinalTools(agent, names)]
  } catch (error) {
    return [report(`Cannot check the tools: ${describe(error)}.`)]
  }
}

/** Parse a command's flags, and set the variables of its other options. */
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
 * Change from a subfolder to the project folder, to read its .env.
 *
 * Stay in the subfolder if it has its own `.env` file or `agents` folder.
 */
function enterProject(project: string): void {
  const isInside = process.cwd().startsWith(project + sep)
  if (isInside && !existsSync('.env') && !existsSync('agents')) process.chdir(project)
}

/** Run the command in this process's arguments. */
export async function runCommand(app: AgentApp): Promise<void> {
  enterProject(dirname(app.load.folder))
  enableCompileCache() // so that later starts reuse the compiled code
  const [name = '', ...args] = process.argv.slice(2)
  try {
    if (process.argv.includes('--help')) {
      console.log(usage())
      return
    }
    const command = Object.hasOwn(ALL, name) ? ALL[name] : undefined
    if (!command) {
      const what = name ? `No such command '${name}'.` : 'Missing command.'
      throw new CommandError(`${what}\n${usage()}`, 2)
    }
    await command.run(args, app)
  } catch (error) {
    const { code = '', message } = error as { code?: string; message: string }
    const isUsage = String(code).startsWith('ERR_PARSE_ARGS')
    if (!isUsage && !(error instanceof CommandError)) {
      process.removeAllListeners('uncaughtException') // the error ends the command
      throw error
    }
    console.error(`Error: ${message}`)
    exit(error instanceof CommandError ? error.exitCode : 2)
  }
}
