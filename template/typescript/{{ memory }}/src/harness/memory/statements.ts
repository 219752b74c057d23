// Build the statements of an IAM policy.

import { variableOf } from '../collections/secrets.ts'

export const ACCOUNT = '${AWS_ACCOUNT_ID}'
export const REGION = '${AWS_REGION}'

interface Statement {
  Action: string[]
  Resource: string[]
  Condition?: { StringLike: Record<string, string[]> }
}
export type Named = [name: string, statement: Statement][]

/** Return a statement that allows actions of a service. */
export function allow(service: string, verbs: string[], resource: string): Statement {
  return { Action: verbs.map((verb) => `${service}:${verb}`), Resource: [resource] }
}

/** Return the policy variable that stands for the value of a secret. */
export function variable(reference = ''): string {
  const name = reference.startsWith('env:')
    ? reference.slice(4).replace(/[^A-Za-z0-9_]+/g, '_')
    : variableOf(reference.split(':secret:').at(-1)!.replace('#', '_'))
  return `\${${name}}`
}
