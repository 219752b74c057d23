// The policy that the agent's role needs on AWS, and no more than that.
//
// Values that only the deployment has are variables: ${AWS_ACCOUNT_ID}, ${AWS_REGION}, and those
// that replace secrets.

import { secretRefs } from '../collections/backends.ts'
import type { Project } from '../collections/check.ts'
import type { Collection } from '../collections/models.ts'
import { KINDS } from './kinds.ts'
import { erasureStatements, sessionStatements } from './session_iam.ts'
import { ACCOUNT, type Named, REGION } from './statements.ts'

const PARTITIONS = { 'cn-': 'aws-cn', 'us-gov-': 'aws-us-gov' }
const VERSION = '2012-10-17' // of the policy language
const VARIABLE = /[$][{][A-Za-z0-9_]+[}]/

/** Where `iam --save` writes the policy. */
export function policyFile({ agentId }: Project): string {
  return `iam/${agentId}.policy.json`
}

/** Where `iam --erasure --save` writes the policy. */
export function erasurePolicyFile({ agentId }: Project): string {
  return `iam/${agentId}.erasure.json`
}

/** The policy for what the collections of the agent need. */
export function makePolicy(project: Project, secretsPrefix = ''): object {
  const used = project.used()
  const arn = startOfArns(project)
  const statements = withNames(used, (collection) => {
    const statementsOf = KINDS[collection.backend.type]?.statements ?? sessionStatements
    return statementsOf(project, collection, arn)
  })
  const prefix = `:secret:${secretsPrefix}`
  const secrets = [...new Set(used.flatMap((one) => secretArns(one, arn, prefix)))].toSorted()
  if (secrets.length > 0) {
    const Action = ['secretsmanager:GetSecretValue']
    statements.push({ Sid: 'Secrets', Effect: 'Allow', Action, Resource: secrets })
  }
  return { Version: VERSION, Statement: statements }
}

/** The policy for the calls of `forget` that turns do not make. */
export function makeErasurePolicy(project: Project): object {
  const arn = startOfArns(project)
  const statements = withNames(project.used(), (collection) => {
    const kind = KINDS[collection.backend.type]
    return kind?.erasureStatements(collection, arn) ?? erasureStatements(project, collection, arn)
  })
  return { Version: VERSION, Statement: statements }
}

function startOfArns(project: Project): string {
  const used = project.used()
  const regions = used.map(({ backend }) => ('region' in backend ? backend.region : ''))
  const [partition] = Object.entries(PARTITIONS).filter(([start]) =>
    regions.some((region) => region.startsWith(start)),
  )
  return `arn:${partition?.[1] ?? 'aws'}`
}

/** The statements of collections, each with an id of its own. */
function withNames(
  collections: readonly Collection[],
  statementsOf: (collection: Collection) => Named,
): object[] {
  const statements = new Map<string, object>()
  for (const collection of collections) {
    for (const [name, statement] of statementsOf(collection)) {
      const words = collection.collection_id.split(/[-_]+/)
      let Sid = name + words.map((one) => one.slice(0, 1).toUpperCase() + one.slice(1)).join('')
      while (statements.has(Sid)) Sid += 'X'
      statements.set(Sid, { Sid, Effect: 'Allow', ...statement })
    }
  }
  return [...statements.values()]
}

/** The secrets in AWS Secrets Manager that a collection names; a variable may replace them. */
function secretArns(collection: Collection, arn: string, prefix: string): string[] {
  return secretRefs(collection.backend).flatMap(({ reference, region }) => {
    const [name = ''] = reference.split('#')
    if (name.startsWith('env:')) return []
    // The service appends six characters to each name.
    if (name.startsWith('arn:')) return [/-[A-Za-z0-9]{6}$/.test(name) ? name : `${name}-??????`]
    return [`${arn}:secretsmanager:${region ?? REGION}:${ACCOUNT}${prefix}${name}-??????`]
  })
}

/** Whether both are the same, except for what stands in place of variables. */
export function isFilledIn(saved: unknown, policy: unknown): boolean {
  if (typeof policy === 'string') {
    const parts = policy.split(VARIABLE).map((one) => one.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
    return typeof saved === 'string' && new RegExp(`^${parts.join('.+')}$`).test(saved)
  }
  if (typeof saved !== 'object' || saved === null) return false
  if (Array.isArray(saved) !== Array.isArray(policy)) return false
  const [own, fields] = [saved as Record<string, unknown>, Object.entries(policy as object)]
  const isSame = Object.keys(own).length === fields.length
  return isSame && fields.every(([name, value]) => isFilledIn(own[name], value))
}
