// Compare AgentCore memories with their collection files.

import type { Document } from '../collections/reader.ts'
import type { Finding } from '../findings.ts'
import { AgentCore, type Resource } from './agentcore.ts'
import type { MemoryCollection } from './base.ts'
import { isWritten, ofStrategies, writtenTemplates } from './strategies.ts'

const CONFIG = ['backend', 'retrieval_config']
const ID = ['backend', 'memory_id_secret']

/** Return the differences between a memory and its collection file. Calls AWS. */
export async function checkAgentCore(
  { memory, namespaces: declared, lifetime }: MemoryCollection,
  document: Document,
  projectId: string | null,
): Promise<Finding[]> {
  const resource = await (memory as unknown as AgentCore).describe()
  const { status, strategies = [], namespaceKeys = [] } = resource
  if (status !== 'ACTIVE') {
    const message = `The memory is ${status}: wait until it is ACTIVE.`
    return [document.finding('AML-W243', message, ...ID)]
  }
  const unindexed = unindexedIn(declared, resource, document)
  // A strategy without templates chooses its namespaces.
  if (strategies.some((strategy) => writtenTemplates([strategy]).length === 0)) return unindexed
  const written = writtenTemplates(strategies)
  if (!declared) {
    if (lifetime !== 'user' || written.some((template) => template.includes('{actorId}'))) return []
    const message =
      'No strategy of the memory has {actorId} in its namespaces: add such a strategy.'
    return [document.finding('AML-W246', message, ...CONFIG)]
  }
  const unwritten = Object.keys(declared).flatMap((name) => {
    const requested = name.replaceAll('{projectId}', projectId ?? '{projectId}')
    const paths = ofStrategies(requested, strategies)
    if (paths.some((path) => written.some((template) => isWritten(path, template)))) return []
    const [id, hint] =
      name.includes('{projectId}') && !namespaceKeys.some(({ key }) => key === 'projectid')
        ? ['AML-W245', 'add the namespace key projectid to the memory']
        : ['AML-W244', `they write to ${written.join(', ') || 'no namespace'}`]
    const message = `No strategy of the memory writes to ${name}: ${hint}.`
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
      const problem = `The memory does not index ${key}`
      const message = `${problem}: add it to the indexed keys to filter by it.`
      return document.finding('AML-W249', message, ...CONFIG, name, 'metadata')
    })
  })
}
