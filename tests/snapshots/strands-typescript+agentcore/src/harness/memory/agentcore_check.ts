// The checks of memories in AgentCore Memory.

import type { Document } from '../collections/reader.ts'
import type { Finding } from '../findings.ts'
import { AgentCore, type Resource } from './agentcore.ts'
import type { MemoryCollection } from './base.ts'
import { isWritten, ofStrategies, writtenTemplates } from './strategies.ts'

const CONFIG = ['backend', 'retrieval_config']
const ID = ['backend', 'memory_id_secret']

/** Return where a memory does not match the file of its collection. Calls the service. */
export async function checkAgentCore(
  { memory, namespaces: declared, lifetime }: MemoryCollection,
  document: Document,
  projectId: string | null,
): Promise<Finding[]> {
  const resource = await (memory as unknown as AgentCore).describe()
  const { status, strategies = [], namespaceKeys = [] } = resource
  if (status !== 'ACTIVE') {
    const message = `The memory is ${status}, and cannot be used until it is ACTIVE.`
    return [document.finding('AML-W243', message, ...ID)]
  }
  const unindexed = unindexedIn(declared, resource, document)
  // A strategy without templates writes to namespaces of its own choice.
  if (strategies.some((strategy) => writtenTemplates([strategy]).length === 0)) return unindexed
  const written = writtenTemplates(strategies)
  if (!declared) {
    if (lifetime !== 'user' || written.some((one) => one.includes('{actorId}'))) return []
    const message = 'No strategy of the memory writes for each {actorId}: add one.'
    return [document.finding('AML-W246', message, ...CONFIG)]
  }
  const unwritten = Object.keys(declared).flatMap((name) => {
    const asked = name.replaceAll('{projectId}', projectId ?? '{projectId}')
    const filled = ofStrategies(asked, strategies)
    if (filled.some((path) => written.some((one) => isWritten(path, one)))) return []
    const [id, why] =
      name.includes('{projectId}') && !namespaceKeys.some(({ key }) => key === 'projectid')
        ? ['AML-W245', 'add the namespace key projectid to the memory']
        : ['AML-W244', `they write to ${written.join(', ') || 'nothing'}`]
    const message = `No strategy of the memory writes to ${name}: ${why}.`
    return [document.finding(id, message, ...CONFIG, name)]
  })
  return [...unindexed, ...unwritten]
}

function unindexedIn(
  declared: MemoryCollection['namespaces'],
  { indexedKeys = [] }: Resource,
  document: Document,
): Finding[] {
  const indexed = indexedKeys.map(({ key }) => key)
  return Object.entries(declared ?? {}).flatMap(([name, { metadata }]) => {
    const missing = Object.keys(metadata).filter((key) => !indexed.includes(key))
    return missing.map((key) => {
      const what = `The memory does not index ${key}`
      const message = `${what}: add it to the indexed keys, or no search finds it.`
      return document.finding('AML-W249', message, ...CONFIG, name, 'metadata')
    })
  })
}
