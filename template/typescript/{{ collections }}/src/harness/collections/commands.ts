// The command `erase-project`, which erases all data of this project.

import { createInterface } from 'node:readline/promises'
import { parseArgs } from 'node:util'

import type { Capability, LoadCapabilities } from '../capability.ts'
import { CommandError, refuseErrors } from '../findings.ts'
import { Declarations } from './capability.ts'
import { storesSessions } from './check.ts'
import { type Keeper, ProjectErasure, REMAINS, RUNNING } from './erasure.ts'

type Use = (erasure: ProjectErasure) => Promise<string[]>

/**
 * Erase all sessions, memories and other stored data of this project.
 *
 * Exit with status 1 if any remain, or if a store was not looked at.
 */
export async function eraseProject(args: string[], load: LoadCapabilities): Promise<void> {
  const options = {
    yes: { type: 'string' },
    unshared: { type: 'string', multiple: true },
  } as const
  const { yes, unshared = [] } = parseArgs({ args, options }).values
  const declarations = (await load()).find((capability) => capability instanceof Declarations)!
  refuseErrors(declarations.check())
  // Of PROJECT_ID, which only memories have.
  const { projectId = null } = declarations.settings as { projectId?: string | null }
  const name = [declarations.project.agentId, projectId].filter(Boolean).join('/')
  const memories = declarations.project.used().filter((it) => !storesSessions(it))
  for (const id of unshared) {
    if (memories.some(({ collection_id }) => collection_id === id)) continue
    const problem = `Collection ${id} is not a memory of this agent.`
    throw new CommandError(`${problem} Nothing was erased.`, 2)
  }
  if (yes !== undefined && yes !== name) throw new CommandError(refusal(yes, name), 2)
  const run = (use: Use) => withErasure(load, unshared, projectId, use)
  const [found, lines] = await run((erasure) => erasure.count())
  console.log([`Project ${name} has stored:`, ...lines].join('\n'))
  if (found.isEmpty) {
    console.log(`Nothing of project ${name} was erased: there is nothing to erase.`)
    process.exitCode = Number(found.hasRemains)
    return
  }
  console.log(`${REMAINS} ${RUNNING}`)
  if (yes === undefined) {
    const typed = (await ask(`Type ${name} to erase all this: `)).trim()
    if (typed !== name) throw new CommandError(refusal(typed, name))
  }
  // New connections: a server may have closed the earlier connections meanwhile.
  const [erased, report] = await run((erasure) => erasure.erase())
  console.log(report.join('\n'))
  if (erased.hasRemains) {
    const again = erased.isRetryable ? ' Run the command again.' : ''
    throw new CommandError(`Not all data of project ${name} is erased.${again}`)
  }
  console.log(`Project ${name} is erased.`)
}

async function withErasure(
  load: LoadCapabilities,
  unshared: string[],
  projectId: string | null,
  use: Use,
): Promise<[ProjectErasure, string[]]> {
  const keepers = (await load()).filter(isKeeper)
  try {
    const stocks = await Promise.all(keepers.map((keeper) => keeper.projectStocks(unshared)))
    const erasure = new ProjectErasure(stocks.flat(), projectId)
    return [erasure, await use(erasure)]
  } finally {
    for (const keeper of keepers) await keeper.close?.()
  }
}

function isKeeper(capability: Capability): capability is Capability & Keeper {
  return 'projectStocks' in capability
}

/** Return the answer to a question; '' at the end of the input. */
async function ask(question: string): Promise<string> {
  const lines = createInterface({ input: process.stdin, output: process.stdout })
  const end = Promise.withResolvers<string>()
  lines.once('close', () => end.resolve(''))
  try {
    return await Promise.race([lines.question(question), end.promise])
  } finally {
    lines.close()
  }
}

function refusal(typed: string, name: string): string {
  return `${JSON.stringify(typed)} is not the name of this project, ${name}. Nothing was erased.`
}
