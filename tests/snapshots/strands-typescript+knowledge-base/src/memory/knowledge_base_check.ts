// The checks of memories in knowledge bases.

import type { Document } from '../collections/reader.ts'
import type { Finding } from '../findings.ts'
import type { MemoryCollection } from './base.ts'
import type { KnowledgeBase } from './knowledge_base.ts'

const TYPES = { VECTOR: 'vector', MANAGED: 'managed' } as const

/** Return where a knowledge base does not match the file of its collection. Calls Bedrock. */
export async function checkKnowledgeBase(
  { memory }: MemoryCollection,
  document: Document,
): Promise<Finding[]> {
  const { base, source, search } = await (memory as unknown as KnowledgeBase).describe()
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
  }
  return found
}
