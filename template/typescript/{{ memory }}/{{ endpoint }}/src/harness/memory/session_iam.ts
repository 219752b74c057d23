// The IAM statement for sessions behind a Lambda function.

import type { Project } from '../collections/check.ts'
import type { Collection } from '../collections/models.ts'
import { ACCOUNT, allow, type Named, REGION } from './statements.ts'

/** Return the IAM statements of a collection, by purpose; `arn` is the prefix of ARNs. */
export function sessionStatements(_: Project, { backend }: Collection, arn: string): Named {
  const transport = backend.type === 'custom' ? backend.transport : undefined
  if (transport?.type !== 'lambda') return []
  const reference = transport.function_arn ?? transport.function_id ?? ''
  const name = reference.replace(/^env:(.*)/, (_, variable) => `\${${variable}}`)
  const isArn = transport.function_arn !== undefined || name.startsWith('arn:')
  const resource = isArn ? name : `${arn}:lambda:${REGION}:${ACCOUNT}:function:${name}`
  return [['Invoke', allow('lambda', ['InvokeFunction'], resource)]]
}

/** Return no statements: `forget` makes the same calls as turns. */
export function erasureStatements(_project: Project, _collection: Collection, _arn: string): Named {
  return []
}
