// The command `eval`.

import { readFileSync, writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'

import { stringify } from 'yaml'

import { type App, type Capability, checkAll } from '../capability.ts'
import { CommandError, refuseErrors } from '../findings.ts'
import { logging, surviveLateErrors } from '../log.ts'
import { checkAgent } from '../modules.ts'
import { Runtime } from '../runtime.ts'
import { type Case, readCases } from './cases.ts'
import { config } from './promptfoo.ts'
import { failures, junit, passed, sum, summary, table } from './report.ts'
import { Runner, type Runs } from './run.ts'
import { caseOf } from './session_case.ts'
import type { EvalSettings } from './settings.ts'
import { Stubs } from './stubs.ts'

const TEXT = { type: 'string' } as const
const OPTIONS = {
  model: TEXT,
  repeat: TEXT,
  jobs: TEXT,
  against: TEXT,
  json: TEXT,
  junit: TEXT,
  summary: TEXT,
  from: TEXT,
  promptfoo: { type: 'boolean' },
} as const
const PROMPTFOO = 'evals/promptfooconfig.yaml'

/** Run the cases in evals/; exit with 1 if a case fails. */
export async function evaluate(args: string[], app: App<EvalSettings>): Promise<void> {
  const { values, positionals } = parseArgs({ args, allowPositionals: true, options: OPTIONS })
  if (values.model) process.env.MODEL = values.model
  if (values.from) {
    process.stdout.write(await sessionCase(app, values.from))
    return
  }
  const cases = readCases(positionals)
  if (values.promptfoo) {
    writeFileSync(PROMPTFOO, stringify(config(cases), { aliasDuplicateObjects: false }))
    const how = `npx promptfoo eval -j 1 -c ${PROMPTFOO}`
    return console.log(`${PROMPTFOO} is written. While \`serve\` runs: ${how}`)
  }
  const [repeat, jobs] = [count('repeat', values.repeat, 1), count('jobs', values.jobs, 4)]
  const before = values.against ? readResults(values.against) : {}
  const runs = await run(app, cases, repeat, jobs)
  console.log(`\n\n${table(runs, before)}`)
  const shown = failures(runs)
  if (shown) console.log(`\n${shown}`)
  const all = Object.values(runs)
  const failed = all.filter((them) => passed(them) < them.length).length
  const left = cases.length - all.length
  const tokens = sum(all.flat(), 'tokens')
  const unfinished = left ? `, ${left} not run` : ''
  console.log(`\n${all.length} cases, ${failed} failed${unfinished}; ${tokens} tokens.`)
  if (values.json) writeFileSync(values.json, JSON.stringify({ cases: runs }, null, 1))
  if (values.junit) writeFileSync(values.junit, junit(runs))
  if (values.summary) writeFileSync(values.summary, summary(runs, before))
  process.exitCode = failed || left || cases.length === 0 ? 1 : 0
}

async function run(
  app: App<EvalSettings>,
  cases: readonly Case[],
  repeat: number,
  jobs: number,
): Promise<Runs> {
  const [settings, findings] = app.readSettings()
  const agent = await app.load.agent()
  const capabilities: Capability[] = await app.makeCapabilities(settings)
  capabilities.push(new Stubs(settings, [], app.load))
  // Without what reaches a store or a memory, or reads their secrets.
  const others = capabilities.filter((capability) => !('tracedAs' in capability))
  const isReal = cases.some(({ data }) => data.real)
  const needed = isReal ? capabilities : others
  findings.push(...checkAgent(agent))
  findings.push(...(await app.checkModel(settings)))
  findings.push(...(await checkAll(needed)))
  refuseErrors(findings)
  if (settings.model === 'offline') {
    console.log('MODEL is not set: the lines `offline` of the cases answer.')
  }
  const unconnected = others.filter((capability) => !('readsSecrets' in capability))
  const runtime = new Runtime(settings, agent, app.load, unconnected)
  const real = isReal ? new Runtime(settings, agent, app.load, capabilities) : runtime
  const stop = new AbortController()
  process.once('SIGINT', () => stop.abort()) // finished runs are kept
  surviveLateErrors()
  logging.hasTurns = false
  const opened = [...new Set([runtime, real])]
  try {
    for (const one of opened) await one.open()
    const runner = new Runner(settings, runtime, real)
    const done = (one: Runs[string][number]) => {
      process.stdout.write(one.skipped ? 's' : one.failures.length > 0 ? 'F' : '.')
    }
    return await runner.runAll(cases, { repeat, jobs, stop: stop.signal, done })
  } finally {
    for (const one of opened) await one.close()
  }
}

async function sessionCase(app: App<EvalSettings>, session: string): Promise<string> {
  const [settings, findings] = app.readSettings()
  const agent = await app.load.agent()
  const capabilities = await app.makeCapabilities(settings)
  refuseErrors([...findings, ...(await checkAll(capabilities))])
  const runtime = new Runtime(settings, agent, app.load, capabilities)
  try {
    await runtime.open()
    const stored = await runtime.sessions.store.load(session)
    if (!stored?.snapshot) throw new CommandError(`Nothing is stored for session ${session}.`)
    return caseOf(session, JSON.parse(String(stored.snapshot)).data.messages)
  } finally {
    await runtime.close()
  }
}

function count(name: string, given: string | undefined, usual: number): number {
  const number = Number(given ?? usual)
  if (Number.isInteger(number) && number >= 1 && number <= 1000) return number
  throw new CommandError(`--${name} is a whole number from 1 to 1000.`, 2)
}

function readResults(path: string): Runs {
  try {
    const { cases } = JSON.parse(readFileSync(path, 'utf8'))
    if (typeof cases === 'object' && cases) return cases as Runs
  } catch {
    // It is said below.
  }
  throw new CommandError(`${path} is not a file that --json wrote.`)
}
