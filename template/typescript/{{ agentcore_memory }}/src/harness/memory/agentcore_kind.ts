// AgentCore Memory as a kind of long-term memory, and its IAM statements.

import type { AgentCoreConfig } from '../collections/agentcore_backend.ts'
import { checkAgentCore } from './agentcore_check.ts'
import { AgentCoreMemory } from './agentcore_search.ts'
import type { Kind } from './kind.ts'
import { Namespace } from './namespaces.ts'
import { ACCOUNT, allow, type Named, variable } from './statements.ts'
import { areWhole } from './strategies.ts'

export const agentcore: Kind = {
  open: ({ backend }, secrets, clients) =>
    new AgentCoreMemory(backend as AgentCoreConfig, secrets, clients),

  check: checkAgentCore,

  statements: (project, collection, arn) => {
    const backend = collection.backend as AgentCoreConfig
    const id = collection.collection_id
    const memory = resource(backend, arn)
    const named = project.reads.includes(id) ? recallStatements(memory, backend) : []
    if (project.isWritable(collection)) {
      named.push(['Record', allow('bedrock-agentcore', ['CreateEvent'], memory)])
    }
    return named
  },

  erasureStatements: ({ backend, writeback }, arn) => {
    const verbs = ['GetMemory', 'ListActors', 'ListSessions', 'ListEvents', 'ListMemoryRecords']
    if (writeback.enabled) verbs.push('DeleteEvent', 'BatchDeleteMemoryRecords')
    const memory = resource(backend as AgentCoreConfig, arn)
    return [['Erase', allow('bedrock-agentcore', verbs, memory)]]
  },
}

function resource({ memory_id_secret: secret, region }: AgentCoreConfig, arn: string): string {
  return `${arn}:bedrock-agentcore:${region}:${ACCOUNT}:memory/${variable(secret)}`
}

function recallStatements(memory: string, { retrieval_config: declared }: AgentCoreConfig): Named {
  const retrieve = allow('bedrock-agentcore', ['RetrieveMemoryRecords'], memory)
  // The resource lists its strategies.
  const isWhole = declared && areWhole(Object.keys(declared))
  const describe: Named = isWhole
    ? []
    : [['Describe', allow('bedrock-agentcore', ['GetMemory'], memory)]]
  if (!declared) return [...describe, ['Recall', retrieve]]
  const recall = [false, true].flatMap((isSubtree): Named => {
    const templates = Object.keys(declared).filter(
      (template) => template.endsWith('/*') === isSubtree,
    )
    const paths = templates.map((template) => {
      const path = template.replace(/\/\*$/, '').replace(/\{\w+\}/g, '*')
      return `/${path.replace(/^\/+|(?<!\/)\/+$/g, '')}/`
    })
    // Each parameter has its own condition key.
    const [parameter] = Object.keys(new Namespace('', isSubtree).parameter)
    const StringLike = { [`bedrock-agentcore:${parameter}`]: [...new Set(paths)].toSorted() }
    const name = isSubtree ? 'RecallBelow' : 'Recall'
    return paths.length > 0 ? [[name, { ...retrieve, Condition: { StringLike } }]] : []
  })
  return [...describe, ...recall]
}
