// The command `eval`.

import { readFileSync, writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'

import { stringify } from 'yaml'

import { type App, type Capability, checkAll } from '../capability.ts'
import { CommandError, refuseErrors } from '../findings.ts'
import { logging, surviveLateErrors } from '../log.ts'
import { checkAgent } from '../modules.ts'
import { Runtime } from '../runtime.ts'
import { mistakesIn } from '../tools.ts'
import { type Case, readCases } from './cases.ts'
import { config } from './promptfoo.ts'
import { errors, failures, junit, passed, sum, summary, table } from './report.ts'
import { type Run, Runner, type Runs } from './run.ts'
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

/** Run all cases in evals/, or only the given names; exit with 1 if a case fails. */
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
    const next = `npx promptfoo eval -j 1 -c ${PROMPTFOO}`
    return console.log(`Wrote ${PROMPTFOO}. Start \`serve\`, then run: ${next}`)
  }
  const repeat = count('repeat', values.repeat, 1)
  const jobs = count('jobs', values.jobs, 4)
  const before = values.against ? readResults(values.against) : {}
  const runs = await run(app, cases, repeat, jobs)
  console.log(`\n\n${table(runs, before)}`)
  const details = failures(runs)
  if (details) console.log(`\n${details}`)
  const all = Object.values(runs)
  const notPassed = all.filter((caseRuns) => passed(caseRuns) < caseRuns.length).length
  const withoutVerdict = all.filter((caseRuns) => errors(caseRuns) > 0).length
  const failed = notPassed - withoutVerdict
  const notRun = cases.length - all.length
  const tokens = sum(all.flat(), 'tokens')
  const withErrors = withoutVerdict ? `, ${withoutVerdict} without a verdict` : ''
  const unfinished = notRun ? `${withErrors}, ${notRun} not run` : withErrors
  console.log(`\n${all.length} cases, ${failed} failed${unfinished}; ${tokens} tokens.`)
  if (values.json) writeFileSync(values.json, JSON.stringify({ cases: runs }, null, 1))
  if (values.junit) writeFileSync(values.junit, junit(runs))
  if (values.summary) writeFileSync(values.summary, summary(runs, before))
  process.exitCode = notPassed || notRun || cases.length === 0 ? 1 : 0
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
  // Only cases with `real: true` reach stores and memories and read their secrets.
  const withoutStores = capabilities.filter((capability) => !('tracedAs' in capability))
  const isReal = cases.some(({ data }) => data.real)
  const needed = isReal ? capabilities : withoutStores
  findings.push(...checkAgent(agent, mistakesIn))
  findings.push(...(await app.checkModel(settings)))
  findings.push(...(await checkAll(needed)))
  refuseErrors(findings)
  if (settings.model === 'offline') {
    console.log('MODEL is not set: the `offline` lines of the cases replace the model.')
  }
  const isolated = withoutStores.filter((capability) => !('readsSecrets' in capability))
  const runtime = new Runtime(settings, agent, app.load, isolated)
  const real = isReal ? new Runtime(settings, agent, app.load, capabilities) : runtime
  const stop = new AbortController()
  process.once('SIGINT', () => stop.abort()) // keep the finished runs
  surviveLateErrors()
  logging.hasTurns = false
  const runtimes = [...new Set([runtime, real])]
  try {
    for (const item of runtimes) await item.open()
    const runner = new Runner(settings, runtime, real)
    const done = (finished: Run) => {
      const failed = finished.failures.length > 0 ? 'F' : '.'
      process.stdout.write(finished.skipped ? 's' : finished.error ? 'E' : failed)
    }
    return await runner.runAll(cases, { repeat, jobs, stop: stop.signal, done })
  } finally {
    for (const item of runtimes) await item.close()
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

function count(name: string, text: string | undefined, fallback: number): number {
  const number = Number(text ?? fallback)
  if (Number.isInteger(number) && number >= 1 && number <= 1000) return number
  throw new CommandError(`--${name} must be a whole number from 1 to 1000.`, 2)
}

function readResults(path: string): Runs {
  try {
    const { cases } = JSON.parse(readFileSync(path, 'utf8'))
    if (typeof cases === 'object' && cases) return cases as Runs
  } catch {
    // The error below covers this case, too.
  }
  throw new CommandError(`${path} has no results: pass a file that --json wrote.`)
}
