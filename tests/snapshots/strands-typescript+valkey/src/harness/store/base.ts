// The protocol of a durable session store, its errors, and the time limit of its calls.

import { v7 as uuid7 } from 'uuid'

import { SecretError } from '../collections/secrets.ts'
import { startTimer } from '../deadline.ts'
import { describe } from '../log.ts'
import type { Stored } from '../sessions/session_store.ts'

/** The stored revision is not the expected one; nothing was changed. */
export class Conflict extends Error {}

/** The store has no such operation; the message is for the owner of the agent. */
export class Unsupported extends Error {}

/** The store failed. Unless `indeterminate`, nothing can have been changed. */
export class StoreUnavailable extends Error {
  readonly indeterminate: boolean

  /** The message is logged: it must not contain a secret. */
  constructor(what: string, { indeterminate = true } = {}) {
    super(what)
    this.indeterminate = indeterminate
  }
}

const LEAST_READ = 67_108_864 // bytes
export const UUID7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

/**
 * Return the maximum size of a snapshot that is read, in bytes.
 *
 * MAX_SNAPSHOT_BYTES may have been larger at the last save, and escapes make JSON longer.
 */
export function readLimit(maxSnapshotBytes: number): number {
  return Math.max(8 * maxSnapshotBytes, LEAST_READ)
}

/** Return a UUIDv7 that sorts after those in `ids`, even if the clock of this process is slow. */
export function idAfter(ids: readonly (string | null)[]): string {
  const known = ids.filter((id) => id !== null && UUID7.test(id)).toSorted()
  const [id, last] = [uuid7(), known.at(-1) ?? '']
  if (id > last) return id
  const milliseconds = parseInt(last.slice(0, 13).replace('-', ''), 16) + 1
  const text = milliseconds.toString(16).padStart(12, '0')
  return `${text.slice(0, 8)}-${text.slice(8)}${id.slice(13)}`
}

/** Whether a revision was saved before another; false if the store does not order them. */
export function isOlder(revision: string | null, known: string | null): boolean {
  if (revision === null || known === null) return false
  return UUID7.test(revision) && UUID7.test(known) && revision < known
}

/** The id and the message of a finding. */
export type Warning = [id: string, message: string]

/**
 * The sessions of one agent in one collection. Every call is bounded in time.
 *
 * Each method throws StoreUnavailable. A checkpoint is a UUIDv7 in lower case; they sort by time.
 */
export interface DurableStore {
  /** What it connects to, without secrets. */
  readonly contact: string

  /** Return what was saved last, or null; `known` itself where that is unchanged. */
  load(sessionId: string, known?: Stored | null): Promise<Stored | null>

  /**
   * Replace the `expected` revision (null: none), and return the new one; also keep the snapshot
   * as a checkpoint. Throws Conflict. A revision that is a UUIDv7 sorts after `expected`: then a
   * store that has gone back to an earlier state is noticed.
   */
  save(
    sessionId: string,
    snapshot: string,
    expected: string | null,
    checkpoint?: string | null,
  ): Promise<string | null>

  /** Add the checkpoint of a save whose acknowledgement was lost; a failure is only a warning. */
  saveCheckpoint(sessionId: string, snapshot: string, checkpoint: string): Promise<void>

  loadCheckpoint(sessionId: string, checkpoint: string): Promise<string | null>

  /** The ids of the checkpoints, oldest first. */
  checkpoints(sessionId: string): Promise<string[]>

  /**
   * Move the snapshot of this revision to where nothing overwrites it, and return its name.
   *
   * Afterwards `load` finds nothing. Throws Conflict.
   */
  quarantine(sessionId: string, revision: string | null): Promise<string>

  /** The names of the quarantined snapshots. */
  quarantined(sessionId: string): Promise<string[]>

  /** The ids of all sessions. Throws Unsupported. */
  sessions(): Promise<string[]>

  /** Delete everything stored for the session, known or not. */
  end(sessionId: string): Promise<void>

  /** Return in which ways the store may lose sessions, for `check --connect`. */
  warnings(): Promise<Warning[]>

  close(): Promise<void>
}

// Errors before anything was sent.
const UNSENT =
  /^(ECONNREFUSED|ENOTFOUND|EAI_\w+|ENETUNREACH|EHOSTUNREACH|EADDRNOTAVAIL|\w*ProviderError)$/

/** Return the error of a failed call; `isRefused`: the store answered, and changed nothing. */
export function unavailable(what: string, error: unknown, isRefused = false): StoreUnavailable {
  const isOwn = error instanceof StoreUnavailable || error instanceof SecretError
  const isCertain = error instanceof StoreUnavailable ? !error.indeterminate : isUnsent(error)
  const text = `${what}: ${isOwn ? error.message : describe(error)}`
  return new StoreUnavailable(text, { indeterminate: !isRefused && !isCertain })
}

function isUnsent(error: unknown): boolean {
  if (error instanceof SecretError) return true
  if (!(error instanceof Error)) return false
  const { code, name, cause, errors = [] } = error as Partial<AggregateError> & { code?: string }
  return UNSENT.test(code ?? '') || UNSENT.test(name ?? '') || [cause, ...errors].some(isUnsent)
}

/** Do the work; after `seconds` throw StoreUnavailable, and abort its signal. */
export async function withinSeconds<T>(
  seconds: number,
  work: (stop: AbortSignal) => Promise<T>,
): Promise<T> {
  const [own, late] = [new AbortController(), Promise.withResolvers<never>()]
  const stopTimer = startTimer(seconds, () => {
    late.reject(new StoreUnavailable(`no answer within ${Number(seconds.toFixed(1))} s`))
  })
  try {
    return await Promise.race([work(own.signal), late.promise])
  } finally {
    stopTimer()
    own.abort() // also ends what was left open, such as a body that was not read
  }
}

/** Return the bytes as text; '', which is not a snapshot, where they are not UTF-8. */
export function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    return ''
  }
}
