// Check that each collection's version covers its changes since a commit.
//
// The specification requires a patch version for descriptions, and a minor version for the scope,
// retrieval and writing. The place of the data and the specification need a major version.

import { execFileSync } from 'node:child_process'
import { isDeepStrictEqual } from 'node:util'

import { type Document, finding, type Findings, parseFrontMatter } from './reader.ts'

type Fields = Record<string, unknown>
/** A changed field, and the index of the version number to raise. */
type Change = [field: string, level: number]

const SECONDS = 20 // per git call
const BYTES = 1_000_000 // maximum output of git
// Index of the version number; other fields: 0 (major).
const FIELDS: Fields = { meta: 2, status: 2, scope: 1, writeback: 1 }
// Backend fields for reading, writing and expiry; they need a minor version.
const MINOR = ['retrieval_config', 'batch_size', 'extraction', 'ttl_seconds', 'ttl_days']
MINOR.push('timeout_ms', 'retry_policy')

/** A git command failed; the message has the reason. */
class GitError extends Error {}

/** Report collections whose version is too low for their changes since a commit. */
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
    for (const { document } of files.filter((file) => known.includes(file.document.file))) {
      const content = git(folder, 'show', `${commit}:./${document.file}`)
      yield* check(document, parseFrontMatter(content, document.file), ref)
    }
  } catch (error) {
    if (!(error instanceof GitError)) throw error
    yield finding('AML-E017', 'collections', 0, `Cannot compare with ${ref}: ${error.message}.`)
  }
}

/** Compare a file with its older content; skip it if the old version is unreadable. */
function* check(document: Document, { data: before }: Document, ref: string): Findings {
  const { data: now } = document
  const version = String(before?.version)
  const numbers = version.split(/[-+]/)[0]!.split('.')
  if (!before || !now || !numbers.every((number) => /^[0-9]+$/.test(number))) return
  let required = numbers.map(Number)
  const changed = changesOf(before, now)
  if (changed.length > 0 && required.length === 3 && !/^[^+]*-/.test(version)) {
    const level = Math.min(...changed.map(([, index]) => index))
    required = required.map((number, at) => (at < level ? number : at === level ? number + 1 : 0))
  }
  const numbersNow = String(now.version).split(/[-+]/)[0]!.split('.').map(Number)
  const at = required.findIndex((number, place) => number !== numbersNow[place])
  if (at < 0 || numbersNow[at]! > required[at]!) return
  const fields = changed.map(([field]) => field).join(', ')
  const reason = `${ref} has ${version}${fields && `, and since then ${fields} changed`}`
  const message = `The version is too low: ${reason}. Raise it to ${required.join('.')}.`
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
  const old = before as Fields
  const present = now as Fields
  return differing(old, present).flatMap((name) => {
    const both = [old[name], present[name]]
    if (name === 'transport' && both.every(isMapping)) {
      return backendChanges(`${path}.${name}`, ...both)
    }
    return [[`${path}.${name}`, MINOR.includes(name) ? 1 : 0] satisfies Change]
  })
}

/** Return the sorted names of the fields that differ. */
function differing(before: Fields, now: Fields): string[] {
  const names = new Set([...Object.keys(before), ...Object.keys(now)])
  return [...names].toSorted().filter((name) => !isDeepStrictEqual(before[name], now[name]))
}

function isMapping(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Return the output of git. Throws GitError. */
function git(folder: string, ...words: string[]): Buffer {
  const stdio: ['ignore', 'pipe', 'ignore'] = ['ignore', 'pipe', 'ignore']
  const options = { stdio, timeout: SECONDS * 1000, maxBuffer: BYTES }
  try {
    return execFileSync('git', ['-C', folder, ...words], options)
  } catch (error) {
    const hasRun = (error as { status?: unknown }).status
    const reason = hasRun ? 'it is not a commit or tag of this repository' : 'cannot run git'
    throw new GitError(reason)
  }
}
