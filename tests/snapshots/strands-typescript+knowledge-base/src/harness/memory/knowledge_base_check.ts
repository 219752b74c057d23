// The checks of memories in knowledge bases.

import type { Document } from '../collections/reader.ts'
import type { Finding } from '../findings.ts'
import type { MemoryCollection } from './base.ts'
import { type KnowledgeBase, REFUSED } from './knowledge_base.ts'

const MAX_SHOWN = 10 // documents
const TYPES = { VECTOR: 'vector', MANAGED: 'managed' } as const

/** Return where a knowledge base does not match the file of its collection. Calls Bedrock. */
export async function checkKnowledgeBase(
  { memory }: MemoryCollection,
  document: Document,
): Promise<Finding[]> {
  const knowledgeBase = memory as unknown as KnowledgeBase
  const { base, source, search } = await knowledgeBase.describe()
  const found: Finding[] = []
  const note = (id: string, message: string, field: string) =>
    found.push(document.finding(id, message, 'backend', field))
  if (base.status !== 'ACTIVE') {
    const what = `The knowledge base is ${base.status}`
    note('AML-W243', `${what}, and cannot be used until it is ACTIVE.`, 'knowledge_base_id_secret')
  }
  const { type = '' } = base.knowledgeBaseConfiguration ?? {}
  const known: string | undefined = TYPES[type as keyof typeof TYPES]
  if (known !== search) {
    const what = known ? `set search to "${known}"` : 'no memory can use it'
    note('AML-E115', `The knowledge base is of type ${type}: ${what}.`, 'search')
  }
  const kind = source?.dataSourceConfiguration?.type ?? 'CUSTOM'
  if (kind !== 'CUSTOM') {
    const message = `The data source is of type ${kind}: texts need one of type CUSTOM.`
    note('AML-E116', message, 'data_source_id_secret')
  } else if (source && source.status !== 'AVAILABLE') {
    const message = `The data source is ${source.status}: it takes no texts until it is AVAILABLE.`
    note('AML-W243', message, 'data_source_id_secret')
  } else if (source) {
    for (const message of await refusedIn(knowledgeBase)) {
      note('AML-W241', message, 'data_source_id_secret')
    }
  }
  return found
}

/** Return the documents that the knowledge base accepted, and did not index. */
async function refusedIn(memory: KnowledgeBase): Promise<string[]> {
  const found: string[] = []
  for await (const page of memory.documents()) {
    for (const { id, status, reason } of page) {
      if (REFUSED.includes(status)) {
        found.push(`Document ${id} is ${status}: ${reason || 'no reason'}.`)
      }
    }
  }
  if (found.length <= MAX_SHOWN) return found
  const more = found.length - MAX_SHOWN
  return [...found.slice(0, MAX_SHOWN), `${more} more documents are not indexed.`]
}
