// Erase an actor's sessions from the session store.

import { createHash } from 'node:crypto'

import { Capability } from '../capability.ts'
import type { Modules } from '../modules.ts'
import type { CoreSettings } from '../settings.ts'
import { Conflict, type DurableStore, StoreUnavailable, Unsupported } from '../store/base.ts'
import { Store } from '../store/capability.ts'
import { NOTHING, ownerOf, UNREADABLE } from '../store/snapshot.ts'
import { addPlace, LATER, type Report } from './erasure_report.ts'
import { LongTermMemory } from './long_term.ts'

const SHORTENED = /^.{60}-[0-9a-f]{32}$/s // a memory's name for a long session id
const LONG = 'memories store only a part of its id, and the store cannot list its sessions'
const RUNNING =
  'a new session whose first turn is running may remain: run this again after the turn'

/** Lets `forget` also erase an actor's sessions, and stops recording their turns. */
export class SessionErasure extends Capability {
  /** Deletes old versions of an actor's sessions. SessionVersions sets it. */
  purge: ((store: DurableStore, report: Report) => Promise<void>) | null = null

  constructor(settings: CoreSettings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    const longTerm = before.find((capability) => capability instanceof LongTermMemory)!
    const sessions = before.find((capability) => capability instanceof Store)!
    const { eraseSessions: withoutStore } = longTerm
    longTerm.isForgotten = async (actor, startedAt) => {
      return sessions.store !== null && (await isForgotten(sessions.store, actor, startedAt))
    }
    longTerm.eraseSessions = async (report, candidates) => {
      const { isWritable, store } = sessions
      if (!store) return await withoutStore(report, candidates)
      try {
        await eraseSessions(store, isWritable, report, candidates)
        if (isWritable) await this.purge?.(store, report)
      } finally {
        await store.close()
      }
      if (!isWritable) report.notes.push(LATER)
    }
  }
}

/** End all sessions of an actor; check `candidates` if the store cannot list sessions. */
async function eraseSessions(
  store: DurableStore,
  isWritable: boolean,
  report: Report,
  candidates: string[],
): Promise<void> {
  const { actor } = report
  const place = addPlace(report, 'the session store', store.contact)
  try {
    if (isWritable) {
      await markForgotten(store, actor)
      report.notes.push(RUNNING)
    }
    const ids = await store.sessions().catch((error) => {
      if (!(error instanceof Unsupported)) throw error
      const checked = `only ${candidates.length} sessions known to memories were checked`
      report.notes.push(`the session store cannot list its sessions: ${checked}`)
      return candidates
    })
    for (const id of ids) {
      const owner = await ownerOf(store, id)
      if (owner === NOTHING) await store.trimFiles(id) // of a first turn that was not saved
      if (owner === UNREADABLE) {
        report.notes.push(`session ${id} is unreadable, so it may belong to anyone`)
      } else if (owner === NOTHING && SHORTENED.test(id)) {
        report.could_not.push(`a session whose id begins with ${id.slice(0, 60)}: ${LONG}`)
      } else if (owner === actor && !isWritable) {
        report.could_not.push(`session ${id}: the session store is read-only here`)
      } else if (owner === actor) {
        await store.end(id)
        report.sessions++
        place.sessions++
      }
    }
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error
    report.could_not.push(`sessions: ${error.message}`)
  }
}

/** Whether an actor was erased after a turn began. Throws StoreUnavailable. */
async function isForgotten(store: DurableStore, actor: string, startedAt: Date): Promise<boolean> {
  const mark = await store.load(markOf(actor))
  return mark !== null && startedAt <= new Date(JSON.parse(mark.snapshot).created_at)
}

/** Stop all processes from recording earlier turns of the actor. */
async function markForgotten(store: DurableStore, actor: string): Promise<void> {
  const created_at = new Date().toISOString()
  const app_data = { actor: null, turn: 0, key: null, reply: '' }
  const head = { scope: 'agent', schema_version: '1.0', created_at }
  const mark = JSON.stringify({ ...head, data: { messages: [] }, app_data })
  const before = await store.load(markOf(actor))
  await store.save(markOf(actor), mark, before?.revision ?? null).catch((error) => {
    if (!(error instanceof Conflict)) throw error // another process saved the mark
  })
}

/** Return the session id of an actor's erasure mark. */
function markOf(actor: string): string {
  return `forgotten-${createHash('sha256').update(actor).digest('hex')}`
}
