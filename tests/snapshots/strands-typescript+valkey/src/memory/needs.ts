// What a collection needs on AWS, as statements of a policy.
//
// What is known only where the agent runs stands there as ${VARIABLE}: the account, the region, and
// the values of secrets, by the variables that replace them.

import type { Collection } from './models.ts'
import { Place } from './namespaces.ts'
import type { Project } from './project.ts'
import { referencesOf } from './secrets.ts'
import { isWritable } from './stores.ts'
import type { AgentCoreMemory } from './topology.ts'

const [ACCOUNT, REGION] = ['${AWS_ACCOUNT_ID}', '${AWS_REGION}']
export type Statement = {
  Action: string[]
  Resource: string[]
  Condition?: { StringLike: Record<string, string[]> }
}
type Needs = [need: string, statement: Statement][]
type S3 = Extract<Collection['backend'], { type: 's3' }>

/** Statements without their effect, each behind what it is for; `arn` is the start of ARNs. */
export function needsOf(project: Project, collection: Collection, arn: string): Needs {
  const [{ backend, collection_id: id }, canWrite] = [collection, isWritable(project, collection)]
  if (backend.type === 'agentcore_memory') {
    const name = variable(backend.memory_id_secret ?? '')
    const memory = `${arn}:bedrock-agentcore:${backend.region}:${ACCOUNT}:memory/${name}`
    const found = project.reads.includes(id) ? recall(memory, backend) : []
    if (canWrite) found.push(['Record', statement('bedrock-agentcore', ['CreateEvent'], memory)])
    return found
  }
  if (backend.type === 's3') {
    return bucket(`${arn}:s3:::${variable(backend.bucket_secret ?? '')}`, backend, canWrite)
  }
  const way = backend.type === 'custom' ? backend.transport : undefined
  if (way?.type !== 'lambda') return []
  let name = (way.function_arn ?? way.function_id ?? '').replace(
    /^env:(.*)/,
    (_, it) => `\${${it}}`,
  )
  if (way.function_arn === undefined && !name.startsWith('arn:')) {
    name = `${arn}:lambda:${REGION}:${ACCOUNT}:function:${name}`
  }
  return [['Invoke', statement('lambda', ['InvokeFunction'], name)]]
}

function recall(memory: string, { retrieval_config: declared }: AgentCoreMemory): Needs {
  const retrieve = statement('bedrock-agentcore', ['RetrieveMemoryRecords'], memory)
  if (!declared) {
    // The memory says which namespaces there are.
    const describe = statement('bedrock-agentcore', ['GetMemory'], memory)
    return [
      ['Describe', describe],
      ['Recall', retrieve],
    ]
  }
  const found: Needs = []
  for (const isSubtree of [false, true]) {
    const keys = Object.keys(declared).filter((one) => one.endsWith('/*') === isSubtree)
    const paths = keys.map((one) => {
      const path = one.replace(/\/\*$/, '').replace(/\{\w+\}/g, '*')
      return `/${path.replace(/^\/+|\/+$/g, '')}/`
    })
    const [name] = Object.keys(new Place('', isSubtree).wire) // each parameter has a key of its own
    const StringLike = { [`bedrock-agentcore:${name}`]: [...new Set(paths)].toSorted() }
    if (paths.length > 0)
      found.push([isSubtree ? 'RecallBelow' : 'Recall', { ...retrieve, Condition: { StringLike } }])
  }
  return found
}

function bucket(name: string, { prefix, ttl_days: days }: S3, canWrite: boolean): Needs {
  const verbs = canWrite ? ['GetObject', 'PutObject', 'DeleteObject'] : ['GetObject']
  const hasRule = canWrite && prefix && days
  const rule = hasRule ? ['GetLifecycleConfiguration', 'PutLifecycleConfiguration'] : []
  return [
    ['Objects', statement('s3', verbs, prefix ? `${name}/${prefix}/*` : `${name}/*`)],
    ['Bucket', statement('s3', ['ListBucket', ...rule], name)],
  ]
}

/** The secrets of AWS Secrets Manager that a collection names; a variable may replace them. */
export function secretsOf(collection: Collection, arn: string): string[] {
  return referencesOf(collection).flatMap(([reference, , region]) => {
    const [name = ''] = reference.split('#')
    if (name.startsWith('env:')) return []
    // Behind its name each has six characters.
    if (name.startsWith('arn:')) return [/-[A-Za-z0-9]{6}$/.test(name) ? name : `${name}-??????`]
    return [`${arn}:secretsmanager:${region ?? REGION}:${ACCOUNT}:secret:${name}-??????`]
  })
}

function statement(service: string, verbs: string[], resource: string): Statement {
  return { Action: verbs.map((verb) => `${service}:${verb}`), Resource: [resource] }
}

/** What stands for the value of a secret. */
function variable(reference: string): string {
  if (reference.startsWith('env:')) {
    return `\${${reference.slice(4).replace(/[^A-Za-z0-9_]+/g, '_')}}`
  }
  const name = reference.split(':secret:').at(-1)!
  return `\${${name.replace(/[^A-Za-z0-9]+/g, '_').toUpperCase()}}`
}
