// The protocol of durable session stores, its errors, and the time limit of calls.

import { v7 as uuid7 } from 'uuid'

import type { Stock } from '../collections/erasure.ts'
import { SecretError } from '../collections/secrets.ts'
import { SESSION_ID } from '../contract.ts'
import { startTimer } from '../deadline.ts'
import { describe } from '../log.ts'
import type { Stored } from '../sessions/session_store.ts'

/** The stored revision differs from the expected revision; the store is unchanged. */
export class Conflict extends Error {}

/** The store does not support the operation; the message is for the agent's owner. */
export class Unsupported extends Error {}

/**
 * A call to the store failed. If `indeterminate`, the store may still have made the change.
 *
 * The message is logged: it must not contain secrets.
 */
export class StoreUnavailable extends Error {
  readonly indeterminate: boolean

  constructor(message: string, { indeterminate = true } = {}) {
    super(message)
    this.indeterminate = indeterminate
  }
}

/**
 * Return a session id as a part of a key or path: percent-encoded (RFC 3986).
 *
 * Letters, digits, `-`, `.`, `_` and `~` are unchanged, so different ids have different segments.
 */
export function segmentOf(sessionId: string): string {
  const escape = (sign: string) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`
  return encodeURIComponent(sessionId).replace(/[!'()*]/g, escape)
}

/**
 * Return the session id of a segment, or null if the segment is not from `segmentOf`.
 *
 * @public
 */
export function sessionOf(segment: string): string | null {
  const byte = (_: string, code: string) => String.fromCharCode(parseInt(code, 16))
  const sessionId = segment.replace(/%([0-9A-F]{2})/g, byte)
  return SESSION_ID.test(sessionId) && segmentOf(sessionId) === segment ? sessionId : null
}

const MIN_READ_LIMIT = 67_108_864 // bytes
export const UUID7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

/**
 * Return the maximum size of a snapshot to read, in bytes.
 *
 * It exceeds MAX_SNAPSHOT_BYTES, which may have been larger at the last save. JSON escapes also
 * add bytes.
 */
export function readLimit(maxSnapshotBytes: number): number {
  return Math.max(8 * maxSnapshotBytes, MIN_READ_LIMIT)
}

/** Return a UUIDv7 that sorts after all in `ids`, even if the clock of this process is slow. */
export function idAfter(ids: readonly (string | null)[]): string {
  const known = ids.filter((id) => id !== null && UUID7.test(id)).toSorted()
  const id = uuid7()
  const last = known.at(-1) ?? ''
  if (id > last) return id
  const milliseconds = parseInt(last.slice(0, 13).replace('-', ''), 16) + 1
  const text = milliseconds.toString(16).padStart(12, '0')
  return `${text.slice(0, 8)}-${text.slice(8)}${id.slice(13)}`
}

/** Return whether a revision is older than `known`; false if revisions have no order. */
export function isOlder(revision: string | null, known: string | null): boolean {
  if (revision === null || known === null) return false
  return UUID7.test(revision) && UUID7.test(known) && revision < known
}

/** Contents by name: see detached_files.ts. */
export type Files = ReadonlyMap<string, Uint8Array>
export const NO_FILES: Files = new Map()

/** The id and the message of a finding. */
export type StoreWarning = [id: string, message: string]

/** A stored snapshot of more than `readLimit` bytes; `snapshot` is empty. */
export class TooLarge implements Stored {
  readonly revision: string | null
  readonly snapshot = ''

  constructor(revision: string | null) {
    this.revision = revision
  }
}

/**
 * The sessions of one agent in one collection.
 *
 * Snapshots are JSON. The memory-collection specification defines each backend's layout. A
 * checkpoint is a copy of a snapshot; its id is a UUIDv7 in lower case, so ids sort by time. Every
 * call has a time limit and throws StoreUnavailable.
 */
export interface DurableStore {
  /** The address of the store's server or service, without secrets. */
  readonly contact: string

  /**
   * Return the latest snapshot, or null; return `known` itself if it is the latest.
   *
   * The store may return TooLarge instead.
   */
  load(sessionId: string, known?: Stored | null): Promise<Stored | null>

  /**
   * Save if the stored revision is `expected`, or null without data; return the new revision.
   *
   * `files` are new files that the snapshot refers to: no reader sees it without them. With
   * `checkpoint`, also save a copy under that id. A UUIDv7 revision sorts after `expected`, so that
   * the caller can detect a store rolled back to an earlier state. Throws Conflict.
   */
  save(
    sessionId: string,
    snapshot: string,
    expected: string | null,
    checkpoint?: string | null,
    files?: Files,
  ): Promise<string | null>

  /** Save a copy under that id, unless `save` always saves a copy; log a failure. */
  saveCheckpoint(sessionId: string, snapshot: string, checkpoint: string): Promise<void>

  /** Return the snapshot of a checkpoint, or null; empty instead of TooLarge. */
  loadCheckpoint(sessionId: string, checkpoint: string): Promise<string | null>

  /** Return the ids of the checkpoints, oldest first. */
  checkpoints(sessionId: string): Promise<string[]>

  /** Return the files of a session that exist. */
  loadFiles(sessionId: string, names: readonly string[]): Promise<Files>

  /**
   * Delete the files that no snapshot of the session refers to; log a failure.
   *
   * `dropped` are files that a save no longer needs; a store that can list its files does not need
   * the names. A store that uploads files before the snapshot keeps those of the last hour, which a
   * running save may need.
   */
  trimFiles(sessionId: string, dropped?: readonly string[]): Promise<void>

  /**
   * Move the latest snapshot to a place that no save overwrites; return its new name.
   *
   * Throws Conflict if the stored revision is not `revision`.
   */
  quarantine(sessionId: string, revision: string | null): Promise<string>

  /** Return the names of the quarantined snapshots. */
  quarantined(sessionId: string): Promise<string[]>

  /** Return the sorted ids of all sessions. Throws Unsupported. */
  sessions(): Promise<string[]>

  /** Delete all data of the session. Idempotent. */
  end(sessionId: string): Promise<void>

  /** Return the data of the agent's sessions that may remain after all have ended. */
  leftovers(): Stock[]

  /** Return risks of losing sessions or keeping them too long, for `check --connect`. */
  warnings(): Promise<StoreWarning[]>

  /** Finish background work and disconnect. */
  close(): Promise<void>
}

// Codes and names of errors that occur before the client sends a request.
const UNSENT =
  /^(ECONNREFUSED|ENOTFOUND|EAI_\w+|ENETUNREACH|EHOSTUNREACH|EADDRNOTAVAIL|\w*ProviderError)$/

/** Return the error of a failed call that was sent at most once. */
export function unavailable(what: string, error: unknown): StoreUnavailable {
  const isOwn = error instanceof StoreUnavailable || error instanceof SecretError
  const isCertain = error instanceof StoreUnavailable ? !error.indeterminate : isUnsent(error)
  const text = `${what}: ${isOwn ? error.message : describe(error)}`
  return new StoreUnavailable(text, { indeterminate: !isCertain })
}

function isUnsent(error: unknown): boolean {
  if (error instanceof SecretError) return true
  if (!(error instanceof Error)) return false
  const { code, name, cause, errors = [] } = error as Partial<AggregateError> & { code?: string }
  return UNSENT.test(code ?? '') || UNSENT.test(name ?? '') || [cause, ...errors].some(isUnsent)
}

/** Run `work`; after `seconds`, abort its signal and throw StoreUnavailable. */
export async function withinSeconds<T>(
  seconds: number,
  work: (stop: AbortSignal) => Promise<T>,
): Promise<T> {
  const controller = new AbortController()
  const timeout = Promise.withResolvers<never>()
  const stopTimer = startTimer(seconds, () => {
    timeout.reject(new StoreUnavailable(`no answer within ${Number(seconds.toFixed(1))} s`))
  })
  try {
    return await Promise.race([work(controller.signal), timeout.promise])
  } finally {
    stopTimer()
    controller.abort() // after a success too: it closes an unread response body
  }
}

/** Decode UTF-8; return '', an unreadable snapshot, if the bytes are invalid. */
export function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    return ''
  }
}
