// The sessions of one actor, in the store and in copies of it: found, and ended.

import type { Parts } from '../parts.ts'
import { type Backend, type Stored, Unavailable, Unsupported } from './backends.ts'
import type { Report } from './erasing.ts'
import type { Project } from './project.ts'
import { Secrets } from './secrets.ts'
import { buildBackend, keepers } from './stores.ts'

const UNKNOWN = Symbol('what is stored cannot be read')

/** End the sessions of an actor; those that memories `heard` are tried when none are listed. */
export async function eraseSessions(
  parts: Parts,
  project: Project,
  heard: readonly string[],
  report: Report,
): Promise<void> {
  const { store, collection } = parts
  if (!store || !collection) {
    report.notes.push(`no session store was searched. ${(await parts.contacts())[1]}`)
    return
  }
  const where = collection.collection_id
  const [ended, unclear]: [string[], string[]] = [[], []]
  try {
    for (const id of await listed(store, where, heard, report)) {
      const owner = await ownerOf(store, id)
      if (owner === UNKNOWN) unclear.push(id)
      else if (owner !== report.actor) continue
      else if (!collection.writeback.enabled) {
        report.could_not.push(`session ${id}: collection ${where} is read-only here`)
      } else {
        await store.end(id)
        ended.push(id)
      }
    }
  } catch (error) {
    if (!(error instanceof Unavailable)) throw error
    report.could_not.push(`sessions in collection ${where}: ${error.message}`)
  }
  report.sessions = ended.length
  for (const id of unclear) {
    report.notes.push(`session ${id} cannot be read, so it may be of anybody`)
  }
  if (parts.mirrors.length > 0) await eraseCopies(parts, project, ended, report)
}

async function listed(
  store: Backend,
  where: string,
  heard: readonly string[],
  report: Report,
): Promise<readonly string[]> {
  try {
    return await store.sessions()
  } catch (error) {
    if (!(error instanceof Unsupported)) throw error
    const known = `only ${heard.length} that long-term memory knows were looked at`
    report.notes.push(`collection ${where} cannot list its sessions: ${known}`)
    return heard
  }
}

/** The actor of a session, or null; of one whose last turn is lost, that of a checkpoint. */
async function ownerOf(store: Backend, session: string): Promise<unknown> {
  const stored = await store.load(session)
  const owner = actorIn(stored)
  if (owner !== UNKNOWN) return owner
  const checkpoints = await store.checkpoints(session)
  for (const id of checkpoints.toReversed()) {
    const earlier = actorIn(await store.load(session, null, id))
    if (earlier !== UNKNOWN) return earlier
  }
  const isThere = stored || checkpoints.length > 0 || (await store.asides(session)).length > 0
  return isThere ? UNKNOWN : null
}

/** The actor in a snapshot, also in one that no turn could go on with. */
function actorIn(stored: Stored | null): unknown {
  try {
    const { actor } = JSON.parse(stored?.snapshot ?? '').app_data
    return actor === undefined ? UNKNOWN : actor
  } catch {
    return UNKNOWN
  }
}

async function eraseCopies(
  parts: Parts,
  project: Project,
  ended: readonly string[],
  report: Report,
): Promise<void> {
  const secrets = new Secrets(parts.options)
  const known = new Set(parts.mirrors.map(({ contact }) => contact))
  for (const collection of keepers(project).slice(1)) {
    const where = `copies in collection ${collection.collection_id}`
    try {
      const copies = buildBackend(collection, project.agentId, parts.options, secrets)
      if (!known.has(copies.contact)) continue
      report.notes.push(`${where} are not listed: those of sessions that ended before stay`)
      for (const id of ended) await copies.end(id)
      await copies.close()
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error
      report.could_not.push(`${where}: ${error.message}`)
    }
  }
}
