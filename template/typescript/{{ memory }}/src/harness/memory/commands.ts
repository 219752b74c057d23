// The commands `forget` (erase an actor) and `iam` (print the agent's IAM policy).

import { mkdirSync, writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'

import { checkAll, type LoadCapabilities } from '../capability.ts'
import { ACTOR_ID, ERRORS } from '../contract.ts'
import { CommandError, refuseErrors } from '../findings.ts'
import { Erasure } from './erase.ts'
import { linesOf } from './erasure_report.ts'
import { erasurePolicyFile, makeErasurePolicy, makePolicy, policyFile } from './iam.ts'
import { LongTermMemory } from './long_term.ts'

/** Erase an actor's sessions, events and records; exit with status 1 if any remain. */
export async function forget(args: string[], load: LoadCapabilities): Promise<void> {
  const [text, flag] = [{ type: 'string' }, { type: 'boolean' }] as const
  const { actor, json } = parseArgs({ args, options: { actor: text, json: flag } }).values
  if (actor === undefined) throw new CommandError("Missing option '--actor'.", 2)
  if (!ACTOR_ID.test(actor)) throw new CommandError(ERRORS.invalid_actor[1], 2)
  const longTerm = await checked(load)
  try {
    const report = await new Erasure(longTerm, actor).erase()
    console.log(json ? JSON.stringify(report) : linesOf(report).join('\n'))
    process.exitCode = Math.min(report.could_not.length, 1)
  } finally {
    await longTerm.close()
  }
}

/**
 * Print the IAM policy for the agent's role; fill in its variables with envsubst.
 *
 * --erasure prints the additional policy of `forget`; --save writes the policy to iam/.
 */
export async function iam(args: string[], load: LoadCapabilities): Promise<void> {
  const flag = { type: 'boolean' } as const
  const { erasure, save } = parseArgs({ args, options: { erasure: flag, save: flag } }).values
  const { declarations, settings } = await checked(load)
  const { project } = declarations
  const policy = erasure ? makeErasurePolicy(project) : makePolicy(project, settings.secretsPrefix)
  const text = JSON.stringify(policy, null, 2)
  if (!save) return console.log(text)
  const file = erasure ? erasurePolicyFile(project) : policyFile(project)
  mkdirSync('iam', { recursive: true })
  writeFileSync(file, `${text}\n`)
  console.log(`Saved ${file}.`)
}

/** Return the memories. Ends the command if `check` finds errors. */
async function checked(load: LoadCapabilities): Promise<LongTermMemory> {
  const capabilities = await load()
  refuseErrors(await checkAll(capabilities))
  return capabilities.find((capability) => capability instanceof LongTermMemory)!
}
