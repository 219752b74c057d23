// The statements of long-term memory in the IAM policy, and the parts of any statement.

import type { Project } from '../collections/check.ts'
import type { AgentCoreConfig } from '../collections/memory_backend.ts'
import type { Collection } from '../collections/models.ts'
import { variableOf } from '../collections/secrets.ts'
import { areWhole, Namespace } from './namespaces.ts'

export const ACCOUNT = '${AWS_ACCOUNT_ID}'
export const REGION = '${AWS_REGION}'

interface Statement {
  Action: string[]
  Resource: string[]
  Condition?: { StringLike: Record<string, string[]> }
}
export type Named = [name: string, statement: Statement][]

/** A statement that allows actions of a service. */
export function allow(service: string, verbs: string[], resource: string): Statement {
  return { Action: verbs.map((verb) => `${service}:${verb}`), Resource: [resource] }
}

/** The variable that stands for the value of a secret. */
export function variable(reference = ''): string {
  const name = reference.startsWith('env:')
    ? reference.slice(4).replace(/[^A-Za-z0-9_]+/g, '_')
    : variableOf(reference.split(':secret:').at(-1)!.replace('#', '_'))
  return `\${${name}}`
}

/** Return the statements of a collection by purpose; `arn` is the start of ARNs. */
export function memoryStatements(project: Project, collection: Collection, arn: string): Named {
  const { backend, collection_id: id } = collection
  if (backend.type !== 'agentcore_memory') return []
  const name = variable(backend.memory_id_secret)
  const memory = `${arn}:bedrock-agentcore:${backend.region}:${ACCOUNT}:memory/${name}`
  const named = project.reads.includes(id) ? recallStatements(memory, backend) : []
  if (project.isWritable(collection)) {
    named.push(['Record', allow('bedrock-agentcore', ['CreateEvent'], memory)])
  }
  return named
}

function recallStatements(memory: string, { retrieval_config: declared }: AgentCoreConfig): Named {
  const retrieve = allow('bedrock-agentcore', ['RetrieveMemoryRecords'], memory)
  // The resource says which strategies there are.
  const isWhole = declared && areWhole(Object.keys(declared))
  const describe: Named = isWhole
    ? []
    : [['Describe', allow('bedrock-agentcore', ['GetMemory'], memory)]]
  if (!declared) return [...describe, ['Recall', retrieve]]
  const recall = [false, true].flatMap((isSubtree): Named => {
    const templates = Object.keys(declared).filter((one) => one.endsWith('/*') === isSubtree)
    const paths = templates.map((one) => {
      const path = one.replace(/\/\*$/, '').replace(/\{\w+\}/g, '*')
      return `/${path.replace(/^\/+|(?<!\/)\/+$/g, '')}/`
    })
    const [parameter] = Object.keys(new Namespace('', isSubtree).wire) // each has its own key
    const StringLike = { [`bedrock-agentcore:${parameter}`]: [...new Set(paths)].toSorted() }
    const name = isSubtree ? 'RecallBelow' : 'Recall'
    return paths.length > 0 ? [[name, { ...retrieve, Condition: { StringLike } }]] : []
  })
  return [...describe, ...recall]
}
