// Check the saved IAM policies and the AWS resources of long-term memory.

import { existsSync, readFileSync } from 'node:fs'

import { secretRefs } from '../collections/backends.ts'
import type { Project } from '../collections/check.ts'
import { finding, readDocument } from '../collections/reader.ts'
import { hasAwsCredentials } from '../collections/secrets.ts'
import type { Finding } from '../findings.ts'
import { type MemoryCollection, MemoryRefused, MemoryUnavailable } from './base.ts'
import { erasurePolicyFile, isFilledIn, makeErasurePolicy } from './iam.ts'
import { makePolicy, policyFile } from './iam.ts'
import { KINDS } from './kinds.ts'
import { LocalMemory } from './local.ts'

/** Return a warning for each saved policy that differs from the policy the project needs. */
export function checkPolicy(project: Project, secretsPrefix = ''): Finding[] {
  const policy = makePolicy(project, secretsPrefix)
  return [
    ...checkSaved(policyFile(project), policy, 'iam', '--save'),
    ...checkSaved(
      erasurePolicyFile(project),
      makeErasurePolicy(project),
      'iam -- --erasure',
      '--erasure --save',
    ),
  ]
}

function checkSaved(file: string, policy: object, command: string, options: string): Finding[] {
  if (!existsSync(file)) return []
  try {
    const saved: unknown = JSON.parse(readFileSync(file, 'utf8'))
    if (isFilledIn(saved, policy)) return []
  } catch {
    // The file is unreadable or not JSON.
  }
  const remedy = `save it again with \`iam -- ${options}\``
  const message = `This policy differs from the output of \`${command}\`: ${remedy}.`
  return [finding('AML-W248', file, 1, message)]
}

/** Return the differences between memories on AWS and the collection files. */
export async function checkResources(
  project: Project,
  collections: readonly MemoryCollection[],
  projectId: string | null,
): Promise<Finding[]> {
  const findings: Finding[] = []
  for (const collection of collections) {
    if (!(collection.memory instanceof LocalMemory)) {
      findings.push(...(await check(project, collection, projectId)))
    }
  }
  return findings
}

async function check(
  project: Project,
  collection: MemoryCollection,
  projectId: string | null,
): Promise<Finding[]> {
  const file = `collections/${collection.id}.collection.md`
  const document = readDocument(file, file)
  const { backend } = project.collections.get(collection.id)!
  const path = secretRefs(backend)[0]?.path ?? []
  try {
    if (!hasAwsCredentials()) throw new MemoryUnavailable('AWS credentials are missing')
    return await KINDS[backend.type]!.check(collection, document, projectId)
  } catch (error) {
    if (!(error instanceof MemoryUnavailable)) throw error
    if (error instanceof MemoryRefused || error.code === 'ResourceNotFoundException') {
      const { contact } = collection.memory
      const resource = `${contact.charAt(0).toUpperCase()}${contact.slice(1)}`
      const message = `${resource} does not exist: create it, or correct the id.`
      return [document.finding('AML-E112', message, ...path)]
    }
    const problem = 'The status and namespaces of the memory could not be verified'
    return [document.finding('AML-W247', `${problem}: ${error.message}.`, ...path)]
  }
}
