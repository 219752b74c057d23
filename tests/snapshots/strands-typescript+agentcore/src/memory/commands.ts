// The commands `forget` and `iam`.

import { mkdirSync, writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'

import { loadProject } from '../collections/check.ts'
import { ACTOR_ID, ERRORS } from '../contract.ts'
import { Runtime } from '../runtime.ts'
import { CommandError, readSettings, refuseErrors, type Settings } from '../settings.ts'
import { Erasure, linesOf } from './erase.ts'
import { makePolicy, policyFile } from './iam.ts'

/** Erase an actor's sessions, events and records; exit with 1 if some are left. */
export async function forget(args: string[]): Promise<void> {
  const [text, flag] = [{ type: 'string' }, { type: 'boolean' }] as const
  const { actor, json } = parseArgs({ args, options: { actor: text, json: flag } }).values
  if (actor === undefined) throw new CommandError("Missing option '--actor'.", 2)
  if (!ACTOR_ID.test(actor)) throw new CommandError(ERRORS.invalid_actor[1], 2)
  const runtime = new Runtime(await checkedSettings())
  try {
    const erasure = new Erasure(runtime.longTerm, actor)
    await runtime.eraseSessions(erasure.report, await erasure.findSessions())
    const report = await erasure.erase()
    console.log(json ? JSON.stringify(report) : linesOf(report).join('\n'))
    process.exitCode = Math.min(report.could_not.length, 1)
  } finally {
    await runtime.close()
  }
}

/** Print the policy that the agent's role needs on AWS; --save writes it to iam/. */
export async function iam(args: string[]): Promise<void> {
  const { save } = parseArgs({ args, options: { save: { type: 'boolean' } } }).values
  const project = loadProject('.', (await checkedSettings()).agentId)
  const text = JSON.stringify(makePolicy(project), null, 2)
  if (!save) return console.log(text)
  mkdirSync('iam', { recursive: true })
  writeFileSync(policyFile(project), `${text}\n`)
  console.log(`Saved ${policyFile(project)}.`)
}

async function checkedSettings(): Promise<Settings> {
  const [settings, findings] = readSettings()
  refuseErrors([...findings, ...(await Runtime.check(settings))])
  return settings
}
