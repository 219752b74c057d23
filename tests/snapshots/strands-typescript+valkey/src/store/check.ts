// The findings of `check --connect` in a store: whether it can do what turns need.

import { randomUUID } from 'node:crypto'

import type { Collection } from '../collections/models.ts'
import { diagnostic, type Finding } from '../findings.ts'
import { Conflict, type DurableStore, StoreUnavailable } from './base.ts'

const SNAPSHOT = JSON.stringify({
  scope: 'agent',
  schema_version: '1.0',
  created_at: '1970-01-01T00:00:00Z',
  data: { messages: [] },
  app_data: { actor: null, turn: 1, key: null, reply: '' },
})

/** Load, save and end a session that no caller has, and return what may lose sessions. */
export async function checkStore(
  store: DurableStore,
  { collection_id }: Collection,
  isWritable: boolean,
): Promise<Finding[]> {
  const findings: Finding[] = []
  const [file, session] = [`collections/${collection_id}.collection.md`, `check-${randomUUID()}`]
  let what = 'loaded'
  try {
    await store.load(session)
    for (const [id, message] of await store.warnings()) {
      findings.push(diagnostic(id, message, 'warning', file, 1))
    }
    if (isWritable) {
      what = 'saved'
      try {
        await store.save(session, SNAPSHOT, null)
        what = 'ended'
      } finally {
        await store.end(session) // also after a lost reply: nothing is left behind
      }
    }
  } catch (error) {
    if (!(error instanceof StoreUnavailable || error instanceof Conflict)) throw error
    const message = `No session can be ${what}: ${error.message || 'a conflict'}.`
    findings.push(diagnostic('AML-E160', message, 'error', file, 1))
  }
  return findings
}
