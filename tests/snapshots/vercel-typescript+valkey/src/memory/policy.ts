// The command `iam`: the policy that the role of the agent needs on AWS, and no more than that.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'

import { type Diagnostic, readSettings } from '../settings.ts'
import { needsOf, secretsOf, type Statement } from './needs.ts'
import { type Options, readOptions } from './options.ts'
import { checkProject, loadProject, type Project } from './project.ts'
import { finding } from './rules.ts'
import { Refusal } from './session_commands.ts'
import { isWritable, keepers } from './stores.ts'

const PARTITIONS = { 'cn-': 'aws-cn', 'us-gov-': 'aws-us-gov' }
const VARIABLE = /[$][{][A-Za-z0-9_]+[}]/
const HELP = `Usage: node src/memory/main.ts iam [--save]

  Print the policy that the agent's role needs on AWS; envsubst fills in its variables.

Options:
  --save  Write it to iam/<agent_id>.policy.json.`

/** Run `iam` with these arguments. Throws Refusal, and for an option that it lacks. */
export function iam(args: string[]): void {
  const flag = { type: 'boolean' } as const
  const { save, help } = parseArgs({ args, options: { save: flag, help: flag } }).values
  if (help) return console.log(HELP)
  readSettings() // and so .env
  const [options] = readOptions()
  const wrong = checkProject('.', options.agentId).filter(({ severity }) => severity === 'error')
  if (wrong.length > 0) {
    const lines = wrong.map((one) => `${one.file}:${one.line} ${one.id} ${one.message}`)
    throw new Refusal(lines.join('\n'))
  }
  const project = loadProject('.', options.agentId)
  const text = JSON.stringify(policyOf(project), null, 2)
  if (save) {
    mkdirSync('iam', { recursive: true })
    writeFileSync(savedAt(project), `${text}\n`)
  }
  console.log(save ? `Saved ${savedAt(project)}.` : text)
}

/** Whether a saved policy says what `iam` prints now; its variables may be filled in. */
export function checkPolicy(folder: string, options: Options): Diagnostic[] {
  const project = loadProject(folder, options.agentId)
  const file = savedAt(project)
  if (!existsSync(join(folder, file))) return []
  let saved: unknown
  try {
    saved = JSON.parse(readFileSync(join(folder, file), 'utf8'))
  } catch {
    saved = null
  }
  return isFilledIn(saved, policyOf(project)) ? [] : [finding('AML-W248', file, 1)]
}

/** What the collections need that the agent of the project uses. */
export function policyOf(project: Project): object {
  const { collections, reads, writes } = project
  const named = [...new Set([...reads, ...writes])].flatMap((id) => collections.get(id) ?? [])
  const [first, ...further] = keepers(project)
  const copied = further.filter((one) => isWritable(project, one))
  const used = named.filter((one) => {
    return one.backend.type === 'agentcore_memory' || one === first || copied.includes(one)
  })
  const regions = used.map(({ backend }) => ('region' in backend ? backend.region : ''))
  const starts = Object.entries(PARTITIONS).filter(([start]) =>
    regions.some((region) => region.startsWith(start)),
  )
  const arn = `arn:${starts[0]?.[1] ?? 'aws'}`
  const statements = new Map<string, { Sid: string; Effect: string } & Statement>()
  for (const collection of used) {
    for (const [need, what] of needsOf(project, collection, arn)) {
      const parts = collection.collection_id.split(/[-_]+/)
      let Sid = need + parts.map((part) => part.slice(0, 1).toUpperCase() + part.slice(1)).join('')
      while (statements.has(Sid)) Sid += 'X'
      statements.set(Sid, { Sid, Effect: 'Allow', ...what })
    }
  }
  const secrets = [...new Set(used.flatMap((one) => secretsOf(one, arn)))].toSorted()
  if (secrets.length > 0) {
    const action = { Action: ['secretsmanager:GetSecretValue'], Resource: secrets }
    statements.set('Secrets', { Sid: 'Secrets', Effect: 'Allow', ...action })
  }
  return { Version: '2012-10-17', Statement: [...statements.values()] }
}

function savedAt({ agentId }: Project): string {
  return `iam/${agentId}.policy.json`
}

/** Whether both are the same, but for what stands in place of variables. */
function isFilledIn(saved: unknown, policy: unknown): boolean {
  if (typeof policy === 'string') {
    const parts = policy.split(VARIABLE).map((one) => one.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
    return typeof saved === 'string' && new RegExp(`^${parts.join('.+')}$`).test(saved)
  }
  if (typeof saved !== 'object' || saved === null) return false
  if (Array.isArray(saved) !== Array.isArray(policy)) return false
  const [own, names] = [saved as Record<string, unknown>, Object.entries(policy as object)]
  const isSame = Object.keys(own).length === names.length
  return isSame && names.every(([name, value]) => isFilledIn(own[name], value))
}
