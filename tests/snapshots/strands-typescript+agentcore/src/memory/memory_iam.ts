// What long-term memory needs in the IAM policy.

import type { Project } from '../collections/check.ts'
import type { AgentCoreConfig } from '../collections/memory_backend.ts'
import type { Collection } from '../collections/models.ts'
import { Namespace } from './namespaces.ts'
import { ACCOUNT, allow, type Named, variable } from './statements.ts'

/** What a collection needs, each with its purpose; `arn` is the start of ARNs. */
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
  if (!declared) {
    // The resource says which namespaces there are.
    const describe = allow('bedrock-agentcore', ['GetMemory'], memory)
    return [
      ['Describe', describe],
      ['Recall', retrieve],
    ]
  }
  return [false, true].flatMap((isSubtree): Named => {
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
}
