// Files of a session, stored beside its snapshot; the snapshot has references to them.
//
// A file's name is `<sha256>.<uuid7>`: the digest of its content, and the time of its upload. A
// reference replaces the base64 text in the fields `bytes`, `data` and `image` of a snapshot:
// `sha256:<name>`, or `sha256-url:<name>` for URL-safe base64.

import { createHash } from 'node:crypto'

import { v7 as uuid7 } from 'uuid'

import { type Files, UUID7 } from './base.ts'

const RENEWAL_SECONDS = 21_600 // an older file is uploaded again
const MIN_CHARS = 512 // a shorter text stays in the snapshot
const NAME = `[0-9a-f]{64}\\.${UUID7.source.slice(1, -1)}` // without ^ and $
const FIELD = '("(?:bytes|data|image)"\\s*:\\s*")'
const CHAR = '[A-Za-z0-9+/_-]'
// In JSON, a quote inside a string has a backslash: these patterns match only fields.
// `{512,}` would overflow the stack for a large file; `{512}` and `*` do not.
const CONTENT = new RegExp(`${FIELD}(${CHAR}{${MIN_CHARS}}${CHAR}*={0,2})"`, 'g')
const REFERENCE = new RegExp(`${FIELD}(sha256(?:-url)?):(${NAME})"`, 'g')
// A text that looks like a reference gets one more "=": a reference has no "=".
const LITERAL = new RegExp(`${FIELD}(=*)(?=sha256(?:-url)?:)`, 'g')
const ESCAPED = new RegExp(`${FIELD}=(?==*sha256(?:-url)?:)`, 'g')

/**
 * Replace the files in a snapshot by references; return the snapshot and the new files.
 *
 * `stored` are the names of the session's stored files. They stay, unless they are old: a store may
 * expire each file by its time of upload, so an old file is new again.
 */
export function detachFiles(
  snapshot: string,
  stored: readonly string[],
): [snapshot: string, files: Files] {
  const names = new Map(stored.filter(isRecent).map((name) => [name.slice(0, 64), name]))
  const files = new Map<string, Uint8Array>()
  const detach = (whole: string, field: string, text: string) => {
    const kind = /[-_]/.test(text) ? 'sha256-url' : 'sha256'
    const content = Buffer.from(text, 'base64')
    if (encode(kind, content) !== text) return whole
    const digest = hash(content)
    const name = names.get(digest) ?? `${digest}.${uuid7()}`
    if (!names.has(digest)) files.set(name, content)
    names.set(digest, name)
    return `${field}${kind}:${name}"`
  }
  return [snapshot.replace(LITERAL, '$1=$2').replace(CONTENT, detach), files]
}

/** Replace the references in a snapshot by the files; a missing file becomes an empty text. */
export function attachFiles(snapshot: string, files: Files): string {
  const attach = (_: string, field: string, kind: string, name: string) => {
    return `${field}${encode(kind, files.get(name) ?? Buffer.of())}"`
  }
  return snapshot.replace(REFERENCE, attach).replace(ESCAPED, '$1')
}

/** Return the names of the files that a snapshot refers to. */
export function namesIn(snapshot: string): string[] {
  return [...new Set(Array.from(snapshot.matchAll(REFERENCE), ([, , , name = '']) => name))]
}

function isRecent(name: string): boolean {
  const uploadedAt = parseInt(name.slice(65, 78).replace('-', ''), 16) // the time in a UUIDv7
  return Date.now() - uploadedAt < RENEWAL_SECONDS * 1000
}

/** Whether a file's content has the digest in its name. */
export function isIntact(name: string, content: Uint8Array): boolean {
  return name.startsWith(hash(content))
}

function encode(kind: string, content: Uint8Array): string {
  const text = Buffer.from(content).toString('base64')
  // Buffer's base64url has no padding.
  return kind === 'sha256' ? text : text.replaceAll('+', '-').replaceAll('/', '_')
}

function hash(content: Uint8Array): string {
  return createHash('sha256').update(content).digest('hex')
}
