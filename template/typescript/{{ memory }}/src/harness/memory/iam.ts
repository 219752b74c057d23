// Make the IAM policy that the agent's collections need.
//
// Variables such as ${AWS_REGION} stand for the account, the region and secrets.

import { secretRefs } from '../collections/backends.ts'
import type { Project } from '../collections/check.ts'
import type { Collection } from '../collections/models.ts'
import { KINDS } from './kinds.ts'
import { erasureStatements, sessionStatements } from './session_iam.ts'
import { ACCOUNT, type Named, REGION } from './statements.ts'

const PARTITIONS = { 'cn-': 'aws-cn', 'us-gov-': 'aws-us-gov' }
const VERSION = '2012-10-17' // version of the policy language
const VARIABLE = /[$][{][A-Za-z0-9_]+[}]/

/** Return the file where `iam --save` writes the policy. */
export function policyFile({ agentId }: Project): string {
  return `iam/${agentId}.policy.json`
}

/** Return the file where `iam --erasure --save` writes the policy. */
export function erasurePolicyFile({ agentId }: Project): string {
  return `iam/${agentId}.erasure.json`
}

/** Return the IAM policy for the collections that the agent uses. */
export function makePolicy(project: Project, secretsPrefix = ''): object {
  const used = project.used()
  const arn = startOfArns(project)
  const statements = withNames(used, (collection) => {
    const statementsOf = KINDS[collection.backend.type]?.statements ?? sessionStatements
    return statementsOf(project, collection, arn)
  })
  const prefix = `:secret:${secretsPrefix}`
  const secrets = [
    ...new Set(used.flatMap((collection) => secretArns(collection, arn, prefix))),
  ].toSorted()
  if (secrets.length > 0) {
    const Action = ['secretsmanager:GetSecretValue']
    statements.push({ Sid: 'Secrets', Effect: 'Allow', Action, Resource: secrets })
  }
  return { Version: VERSION, Statement: statements }
}

/** Return the IAM policy for the additional calls of `forget`. */
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

/** Return the statements of collections, with unique ids. */
function withNames(
  collections: readonly Collection[],
  statementsOf: (collection: Collection) => Named,
): object[] {
  const statements = new Map<string, object>()
  for (const collection of collections) {
    for (const [name, statement] of statementsOf(collection)) {
      const words = collection.collection_id.split(/[-_]+/)
      let Sid = name + words.map((word) => word.slice(0, 1).toUpperCase() + word.slice(1)).join('')
      while (statements.has(Sid)) Sid += 'X'
      statements.set(Sid, { Sid, Effect: 'Allow', ...statement })
    }
  }
  return [...statements.values()]
}

/** Return the ARNs of a collection's secrets in AWS Secrets Manager. */
function secretArns(collection: Collection, arn: string, prefix: string): string[] {
  return secretRefs(collection.backend).flatMap(({ reference, region }) => {
    const [name = ''] = reference.split('#')
    if (name.startsWith('env:')) return []
    // AWS appends six random characters to the name; a complete ARN already has them.
    if (name.startsWith('arn:')) return [/-[A-Za-z0-9]{6}$/.test(name) ? name : `${name}-??????`]
    return [`${arn}:secretsmanager:${region ?? REGION}:${ACCOUNT}${prefix}${name}-??????`]
  })
}

/** Whether a saved policy equals `policy`, with or without values for its variables. */
export function isFilledIn(saved: unknown, policy: unknown): boolean {
  if (typeof policy === 'string') {
    const parts = policy.split(VARIABLE).map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
    return typeof saved === 'string' && new RegExp(`^${parts.join('.+')}$`).test(saved)
  }
  if (typeof saved !== 'object' || saved === null) return false
  if (Array.isArray(saved) !== Array.isArray(policy)) return false
  const savedFields = saved as Record<string, unknown>
  const fields = Object.entries(policy as object)
  const isSame = Object.keys(savedFields).length === fields.length
  return isSame && fields.every(([name, value]) => isFilledIn(savedFields[name], value))
}
