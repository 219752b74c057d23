// Versions of collections and what changed since a commit, as the specification relates them: a
// patch for descriptions; a minor version for the scope, retrieval and writing; a major one for
// where the data is, and for another specification.

import { execFileSync } from 'node:child_process'
import { isDeepStrictEqual } from 'node:util'

import { type Document, finding, type Findings, parseFrontMatter } from './reader.ts'

type Fields = Record<string, unknown>
/** A field that changed, and which number of the version it concerns. */
type Change = [field: string, level: number]

const SECONDS = 20 // for each call of git
const BYTES = 1_000_000 // of what git prints
// Others are 0: a major version.
const FIELDS: Fields = { meta: 2, status: 2, scope: 1, writeback: 1 }
// Of a backend: how it is read and written, and for how long.
const MINOR = ['retrieval_config', 'batch_size', 'extraction', 'ttl_seconds', 'ttl_days']
MINOR.push('timeout_ms', 'retry_policy')

/** Git has no answer; the message says why. */
class GitError extends Error {}

/** Check that versions grew with what changed since a commit. */
export function* checkVersions(
  folder: string,
  files: readonly { readonly document: Document }[],
  ref: string,
): Findings {
  try {
    const verify = ['rev-parse', '--verify', '--quiet', '--end-of-options', `${ref}^{commit}`]
    const commit = String(git(folder, ...verify)).trim()
    const listed = git(folder, 'ls-tree', '-z', '--name-only', commit, 'collections/')
    const known = String(listed).split('\0')
    for (const { document } of files.filter((one) => known.includes(one.document.file))) {
      const content = git(folder, 'show', `${commit}:./${document.file}`)
      yield* check(document, parseFrontMatter(content, document.file), ref)
    }
  } catch (error) {
    if (!(error instanceof GitError)) throw error
    yield finding('AML-E017', 'collections', 0, `Nothing is known of ${ref}: ${error.message}.`)
  }
}

/** Compare a file with an older one, unless that had no version that can be read. */
function* check(document: Document, { data: before }: Document, ref: string): Findings {
  const { data: now } = document
  const version = String(before?.version)
  const numbers = version.split(/[-+]/)[0]!.split('.')
  if (!before || !now || !numbers.every((number) => /^[0-9]+$/.test(number))) return
  let least = numbers.map(Number)
  const changed = changesOf(before, now)
  if (changed.length > 0 && least.length === 3 && !/^[^+]*-/.test(version)) {
    const level = Math.min(...changed.map(([, one]) => one))
    least = least.map((number, at) => (at < level ? number : at === level ? number + 1 : 0))
  }
  const numbersNow = String(now.version).split(/[-+]/)[0]!.split('.').map(Number)
  const at = least.findIndex((number, place) => number !== numbersNow[place])
  if (at < 0 || numbersNow[at]! > least[at]!) return
  const what = changed.map(([field]) => field).join(', ')
  const why = `${ref} has ${version}${what && `, and since then ${what} changed`}`
  const message = `The version is too low: ${why}. Raise it to ${least.join('.')}.`
  yield document.finding('AML-E016', message, 'version')
}

function changesOf(before: Fields, now: Fields): Change[] {
  return differing(before, now).flatMap((name) => {
    const both = [before[name], now[name]]
    if (name === 'version') return []
    if (name === 'backend' && both.every(isMapping)) return backendChanges(name, ...both)
    return [[name, (FIELDS[name] as number | undefined) ?? 0] satisfies Change]
  })
}

function backendChanges(path: string, before?: unknown, now?: unknown): Change[] {
  const [old, present] = [before as Fields, now as Fields]
  return differing(old, present).flatMap((name) => {
    const both = [old[name], present[name]]
    if (name === 'transport' && both.every(isMapping)) {
      return backendChanges(`${path}.${name}`, ...both)
    }
    return [[`${path}.${name}`, MINOR.includes(name) ? 1 : 0] satisfies Change]
  })
}

/** The names of fields that are not equal, sorted. */
function differing(before: Fields, now: Fields): string[] {
  const names = new Set([...Object.keys(before), ...Object.keys(now)])
  return [...names].toSorted().filter((name) => !isDeepStrictEqual(before[name], now[name]))
}

function isMapping(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Return what git prints. Throws GitError. */
function git(folder: string, ...words: string[]): Buffer {
  const stdio: ['ignore', 'pipe', 'ignore'] = ['ignore', 'pipe', 'ignore']
  const options = { stdio, timeout: SECONDS * 1000, maxBuffer: BYTES }
  try {
    return execFileSync('git', ['-C', folder, ...words], options)
  } catch (error) {
    const isAnswer = (error as { status?: unknown }).status
    const why = isAnswer ? 'it is no commit or tag of this repository' : 'git cannot be run'
    throw new GitError(why)
  }
}
