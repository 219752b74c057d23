// What changed in the collections since a commit, and whether their versions say so.

import { spawnSync } from 'node:child_process'
import { isDeepStrictEqual } from 'node:util'

import { type Document, parse } from './frontmatter.ts'
import { agent, type Collection, collection } from './models.ts'
import { type Documents, references } from './references.ts'
import { at, finding, type Findings, wrongFields } from './rules.ts'

// What a minor version may change of a backend; all else there moves the data, or breaks with it.
const TUNING = ['retrieval_config', 'batch_size', 'ttl_seconds', 'ttl_days']
TUNING.push('timeout_ms', 'retry_policy', 'credentials')
const MODELS = { collection, agent }

/** The findings in the collections of the project in `folder`, against commit `ref`. */
export function* changedSince(ref: string, folder: string, collections: Documents): Findings {
  if (git(folder, 'rev-parse', '--git-dir') === null) {
    yield finding('AML-E154', '.', 0, { ref })
    return
  }
  const options = ['--verify', '--quiet', '--end-of-options']
  const commit = git(folder, 'rev-parse', ...options, `${ref}^{commit}`)
    ?.toString()
    .trim()
  if (commit === undefined) {
    yield finding('AML-E155', '.', 0, { ref })
    return
  }
  const before = documentsAt(folder, commit, 'collection', 'collections')
  const agents = documentsAt(folder, commit, 'agent', 'agents')
  const named = [...agents.values()].flatMap((one) => references(one).map(([, , id]) => id))
  for (const id of new Set(named)) {
    const old = before.get(id)
    if (old && !collections.has(id) && old.get('status') !== 'disabled') {
      yield finding('AML-E014', `collections/${id}.collection.md`, 0, { name: id, ref })
    }
  }
  for (const [id, document] of collections) {
    const old = before.get(id)
    if (old) yield* lintVersion(ref, old, document)
  }
}

function git(folder: string, ...args: string[]): Buffer | null {
  try {
    const done = spawnSync('git', args, { cwd: folder, timeout: 60_000, maxBuffer: Infinity })
    return done.status === 0 ? done.stdout : null
  } catch {
    return null // a name with a null character
  }
}

/** The valid front matters of a folder at a commit. */
function documentsAt(
  folder: string,
  commit: string,
  kind: 'collection' | 'agent',
  below: string,
): Documents {
  const listed = git(folder, 'ls-tree', '--name-only', '-z', commit, `${below}/`)
  const documents: Documents = new Map()
  for (const file of listed?.toString().split('\0') ?? []) {
    if (!file.endsWith(`.${kind}.md`)) continue
    const document = parse(git(folder, 'show', `${commit}:./${file}`) ?? Buffer.of(), file)
    if (document.data !== null && wrongFields(kind, MODELS[kind], document).length === 0) {
      documents.set(file.slice(below.length + 1, -kind.length - 4), document)
    }
  }
  return documents
}

function* lintVersion(ref: string, old: Document, document: Document): Findings {
  if (document.data === null || wrongFields('collection', collection, document).length > 0) return
  const [before, after] = [collection.parse(old.data), collection.parse(document.data)]
  const needed = levelOf(before, after)
  const [was, now] = [numbersOf(before), numbersOf(after)]
  const raised = now[0] > was[0] ? 2 : now[1] > was[1] ? 1 : 0
  const expected = needed === 2 ? `${was[0] + 1}.0.0` : `${was[0]}.${was[1] + 1}.0`
  const names = { ref, before: before.version, expected }
  const order = was.map((part, index) => now[index]! - part).find((difference) => difference !== 0)
  if (order !== undefined && order < 0) {
    yield at('AML-E150', document, ['version'], names)
  } else if (order === undefined && needed !== null) {
    yield at('AML-E151', document, ['version'], names)
  } else if (needed !== null && raised < needed) {
    yield at(raised === 0 ? 'AML-E152' : 'AML-E153', document, ['version'], names)
  }
}

function numbersOf({ version }: Collection): [major: number, minor: number, patch: number] {
  return version.split('.').map(Number) as [number, number, number]
}

/** Which part of a version a change has to raise: 0 patch, 1 minor, 2 major; null: nothing. */
function levelOf(before: Collection, after: Collection): 0 | 1 | 2 | null {
  if (isDeepStrictEqual({ ...before, version: '' }, { ...after, version: '' })) return null
  if (!isDeepStrictEqual(placeOf(before), placeOf(after))) return 2
  if (before.writeback.enabled && !after.writeback.enabled) return 2
  const { collection_id, scope, backend, writeback } = before
  const same = { collection_id, scope, backend, writeback }
  return isDeepStrictEqual({ ...after, ...same }, after) ? 0 : 1
}

/** What of a backend says where the data is. */
function placeOf({ backend }: Collection): object {
  const transport = backend.type === 'custom' ? { ...backend.transport } : {}
  const kept = (of: object) => Object.entries(of).filter(([name]) => !TUNING.includes(name))
  return Object.fromEntries([...kept({ ...backend, transport: null }), ...kept(transport)])
}
