// Bedrock knowledge bases as a kind of long-term memory, and their IAM statements.

import type { KnowledgeBaseConfig } from '../collections/knowledge_base_backend.ts'
import type { Kind } from './kind.ts'
import { KnowledgeBase } from './knowledge_base.ts'
import { checkKnowledgeBase } from './knowledge_base_check.ts'
import { ACCOUNT, allow, type Named, variable } from './statements.ts'

export const knowledgeBase: Kind = {
  open: ({ backend, scope }, secrets, clients) =>
    new KnowledgeBase(backend as KnowledgeBaseConfig, scope.lifetime, secrets, clients),

  check: checkKnowledgeBase,

  statements: (project, collection, arn) => {
    const backend = collection.backend as KnowledgeBaseConfig
    const id = collection.collection_id
    const base = resource(backend, arn)
    const named: Named = []
    if (project.reads.includes(id)) named.push(['Recall', allow('bedrock', ['Retrieve'], base)])
    if (project.isWritable(collection)) {
      // AWS also requires permission to start an ingestion job.
      const verbs = ['IngestKnowledgeBaseDocuments', 'StartIngestionJob']
      verbs.push('GetKnowledgeBaseDocuments') // for the status of documents
      named.push(['Record', allow('bedrock', verbs, base)])
    }
    return named
  },

  erasureStatements: ({ backend, writeback }, arn) => {
    const verbs = ['ListKnowledgeBaseDocuments']
    // AWS also requires permission to start an ingestion job.
    if (writeback.enabled) verbs.push('DeleteKnowledgeBaseDocuments', 'StartIngestionJob')
    return [['Erase', allow('bedrock', verbs, resource(backend as KnowledgeBaseConfig, arn))]]
  },
}

function resource(backend: KnowledgeBaseConfig, arn: string): string {
  const name = variable(backend.knowledge_base_id_secret)
  return `${arn}:bedrock:${backend.region}:${ACCOUNT}:knowledge-base/${name}`
}
