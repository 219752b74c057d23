// The checks of long-term memory: its saved policy, and the resources themselves.

import { existsSync, readFileSync } from 'node:fs'

import type { Project } from '../collections/check.ts'
import { type Document, finding, readDocument } from '../collections/reader.ts'
import { hasAwsCredentials } from '../collections/secrets.ts'
import type { Finding } from '../findings.ts'
import { AgentCore } from './agentcore.ts'
import { type MemoryCollection, MemoryRefused, MemoryUnavailable } from './base.ts'
import type { Resource } from './base.ts'
import { isFilledIn, makePolicy, policyFile } from './iam.ts'
import { isWritten, ofStrategies, writtenTemplates } from './namespaces.ts'

const CONFIG = ['backend', 'retrieval_config']

/** Return a warning if a policy is saved that is not the one that the project needs. */
export function checkPolicy(project: Project): Finding[] {
  const file = policyFile(project)
  if (!existsSync(file)) return []
  try {
    if (isFilledIn(JSON.parse(readFileSync(file, 'utf8')), makePolicy(project))) return []
  } catch {
    // It is not JSON.
  }
  const message = 'This is not the policy that `iam` prints: save it again with `iam -- --save`.'
  return [finding('AML-W248', file, 1, message)]
}

/** Return where a memory on AWS is not as the files need it. Calls the service. */
export async function checkResources(
  collections: readonly MemoryCollection[],
  projectId: string | null,
): Promise<Finding[]> {
  const findings: Finding[] = []
  for (const collection of collections) {
    if (!(collection.memory instanceof AgentCore)) continue
    const file = `collections/${collection.id}.collection.md`
    const document = readDocument(file, file)
    findings.push(...(await check(collection, document, projectId)))
  }
  return findings
}

async function check(
  { memory, namespaces: declared, lifetime }: MemoryCollection,
  document: Document,
  projectId: string | null,
): Promise<Finding[]> {
  const secret = ['backend', 'memory_id_secret']
  let resource
  try {
    if (!hasAwsCredentials()) throw new MemoryUnavailable('there are no AWS credentials')
    resource = await memory.describe()
  } catch (error) {
    if (!(error instanceof MemoryUnavailable)) throw error
    if (error instanceof MemoryRefused || error.code === 'ResourceNotFoundException') {
      const message = `Create ${memory.contact}, or correct the id: it does not exist.`
      return [document.finding('AML-E112', message, ...secret)]
    }
    const what = 'The status and namespaces of the memory could not be verified'
    return [document.finding('AML-W247', `${what}: ${error.message}.`, ...secret)]
  }
  const { status, strategies = [], namespaceKeys = [] } = resource
  if (status !== 'ACTIVE') {
    const message = `The memory is ${status}, and cannot be used until it is ACTIVE.`
    return [document.finding('AML-W243', message, ...secret)]
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
