// Compare knowledge bases with their collection files.

import type { Document } from '../collections/reader.ts'
import type { Finding } from '../findings.ts'
import type { MemoryCollection } from './base.ts'
import { type KnowledgeBase, REJECTED } from './knowledge_base.ts'

const MAX_REPORTED = 10 // documents
const TYPES = { VECTOR: 'vector', MANAGED: 'managed' } as const

/** Return the differences between a knowledge base and its collection file. Calls AWS. */
export async function checkKnowledgeBase(
  { memory }: MemoryCollection,
  document: Document,
): Promise<Finding[]> {
  const knowledgeBase = memory as unknown as KnowledgeBase
  const { base, source, search } = await knowledgeBase.describe()
  const findings: Finding[] = []
  const report = (id: string, message: string, field: string) =>
    findings.push(document.finding(id, message, 'backend', field))
  if (base.status !== 'ACTIVE') {
    const message = `The knowledge base is ${base.status}: wait until it is ACTIVE.`
    report('AML-W243', message, 'knowledge_base_id_secret')
  }
  const { type = '' } = base.knowledgeBaseConfiguration ?? {}
  const searchType: string | undefined = TYPES[type as keyof typeof TYPES]
  if (searchType !== search) {
    const hint = searchType
      ? `set search to "${searchType}"`
      : 'memories need type VECTOR or MANAGED'
    report('AML-E115', `The knowledge base is of type ${type}: ${hint}.`, 'search')
  }
  const kind = source?.dataSourceConfiguration?.type ?? 'CUSTOM'
  if (kind !== 'CUSTOM') {
    const message = `The data source is of type ${kind}: use a data source of type CUSTOM.`
    report('AML-E116', message, 'data_source_id_secret')
  } else if (source && source.status !== 'AVAILABLE') {
    const message = `The data source is ${source.status}: wait until it is AVAILABLE.`
    report('AML-W243', message, 'data_source_id_secret')
  } else if (source) {
    for (const message of await rejectedIn(knowledgeBase)) {
      report('AML-W241', message, 'data_source_id_secret')
    }
  }
  return findings
}

/** Return a message for each document that the knowledge base accepted but did not index. */
async function rejectedIn(memory: KnowledgeBase): Promise<string[]> {
  const findings: string[] = []
  for await (const page of memory.documents()) {
    for (const { id, status, reason } of page) {
      if (REJECTED.includes(status)) {
        findings.push(`Document ${id} is ${status}: ${reason || 'unknown reason'}.`)
      }
    }
  }
  if (findings.length <= MAX_REPORTED) return findings
  const more = findings.length - MAX_REPORTED
  return [...findings.slice(0, MAX_REPORTED), `${more} more documents are not indexed.`]
}
