// Whether the memories that the collections of an agent name are as they need them: for `check`.

import { join } from 'node:path'

import { createSettings, type Diagnostic, diagnostic } from '../settings.ts'
import { AgentCore } from './agentcore.ts'
import { Clients } from './agentcore_client.ts'
import { Unavailable } from './backends.ts'
import { Refused } from './errors.ts'
import { type Document, read } from './frontmatter.ts'
import type { Collection } from './models.ts'
import type { Options } from './options.ts'
import { loadProject } from './project.ts'
import { namespacesOf } from './recall.ts'
import { finding } from './rules.ts'
import { Secrets } from './secrets.ts'
import { hasAws } from './secrets_check.ts'
import { type AgentCoreMemory, buildTopology } from './topology.ts'

const ABSENT = /ResourceNotFoundException|it does not exist/
const CONFIG = ['backend', 'retrieval_config']

/**
 * What does not fit, in a project in which `checkProject` finds no error.
 *
 * Without AWS credentials nothing is called, and that is told.
 */
export async function checkResources(folder: string, options: Options): Promise<Diagnostic[]> {
  const { collections, reads, writes } = loadProject(folder, options.agentId)
  const [clients, secrets] = [new Clients(options), new Secrets(options)]
  const found: Diagnostic[] = []
  try {
    buildTopology(createSettings(), options, loadProject(folder, options.agentId), secrets)
  } catch (error) {
    if (!(error instanceof Unavailable)) throw error
    return [diagnostic('SET-STORE', `${error.message}.`)]
  }
  try {
    for (const id of new Set([...reads, ...writes])) {
      const [collection, file] = [collections.get(id)!, `collections/${id}.collection.md`]
      const { backend } = collection
      if (backend.type !== 'agentcore_memory') continue
      const { memory_id_secret: reference = '', region } = backend
      const memory = new AgentCore(reference, region, secrets, clients)
      const document = read(join(folder, file), file)
      found.push(...(await check(collection, backend, document, memory, options.projectId)))
    }
  } finally {
    await clients.close()
  }
  return found
}

async function check(
  { scope }: Collection,
  { memory_id_secret: name = '', region, retrieval_config: declared }: AgentCoreMemory,
  document: Document,
  memory: AgentCore,
  projectId: string | null,
): Promise<Diagnostic[]> {
  const { file } = document
  const line = document.line(['backend', 'memory_id_secret'])
  const unverified = (why: string) => [finding('AML-W247', file, line, { why })]
  if (!hasAws()) return unverified('there are no AWS credentials')
  try {
    await memory.memoryId()
  } catch (error) {
    if (!(error instanceof Unavailable)) throw error
    const [why = ''] = error.message.replace(`'${name}'`, name).split('; locally, ')
    return unverified(why)
  }
  try {
    const { status, strategies, namespaceKeys } = await memory.describe()
    if (status !== 'ACTIVE') return [finding('AML-W243', file, line, { status })]
    // One without writes to namespaces of its own choice.
    if (strategies.some(({ namespaces }) => namespaces.length === 0)) return []
    // Of this lifetime all templates are told, in the words of the files.
    const reader = { collectionId: '', lifetime: 'project', memory, declared: null }
    const written = Object.keys(await namespacesOf(reader))
    if (declared) return compare(declared, document, written, namespaceKeys, projectId)
    const isOwn = scope.lifetime === 'user'
    if (written.some((one) => one.includes('{actorId}') || !isOwn)) return []
    return [finding('AML-W246', file, document.line(CONFIG))]
  } catch (error) {
    if (!(error instanceof Unavailable)) throw error
    const isAbsent = error instanceof Refused || ABSENT.test(error.message)
    return isAbsent
      ? [finding('AML-E112', file, line, { name, region })]
      : unverified(error.message)
  }
}

function compare(
  declared: object,
  document: Document,
  written: readonly string[],
  keys: readonly string[],
  projectId: string | null,
): Diagnostic[] {
  return Object.keys(declared).flatMap((name) => {
    const asked = name.replaceAll('{projectId}', projectId ?? '{projectId}')
    if (written.some((one) => isWritten(asked, one))) return []
    const isKeyless = name.includes('{projectId}') && !keys.includes('projectid')
    const line = document.line([...CONFIG, name])
    const names = { name, written: written.join(', ') || 'nothing' }
    return [finding(isKeyless ? 'AML-W245' : 'AML-W244', document.file, line, names)]
  })
}

/** Whether what is written by one template may be found by another. */
function isWritten(template: string, written: string): boolean {
  let [asked, wrote] = [segmentsOf(template), segmentsOf(written)]
  if (asked.at(-1) === '*') {
    asked = asked.slice(0, -1)
    wrote = wrote.slice(0, asked.length)
  }
  return asked.length === wrote.length && asked.every((one, at) => meet(one, wrote[at]!))
}

/** Whether a segment is the other, or what the other may become. */
function meet(segment: string, written: string): boolean {
  const pattern = written.split(/\{\w+\}/).join('[^/{}]+')
  return segment === written || new RegExp(`^${pattern}$`).test(segment)
}

function segmentsOf(path: string): string[] {
  return path.replace(/^\/+|\/+$/g, '').split('/')
}
