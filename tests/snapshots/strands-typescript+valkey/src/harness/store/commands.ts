// The commands `sessions list | show | restore | copy | end`: the store, without a turn.

import { existsSync } from 'node:fs'
import { parseArgs } from 'node:util'

import type { LoadCapabilities } from '../capability.ts'
import { storesSessions } from '../collections/check.ts'
import { unsetVariables } from '../collections/secrets.ts'
import { ACTOR_ID, ERRORS, SESSION_ID } from '../contract.ts'
import { CommandError, refuseErrors } from '../findings.ts'
import { Conflict, type DurableStore, StoreUnavailable, Unsupported, UUID7 } from './base.ts'
import { Store } from './capability.ts'
import { Copy } from './copying.ts'
import { SessionFiles } from './files.ts'
import type { StoreSettings } from './settings.ts'
import { foreignFormat, ownerOf, readSnapshot, UNREADABLE } from './snapshot.ts'

const USAGE = `Usage: node src/main.ts sessions COMMAND

  list [--json]               print the ids of all sessions
  show SESSION [--json]       print the last turn of a session, its checkpoints, and the
                              snapshots that were quarantined
  restore SESSION CHECKPOINT  continue a session from a checkpoint that \`show\` prints
  copy [SESSION]... --to STORE
                              copy sessions, all or some, also while turns run, to a collection
                              or a folder such as ./kept; --from STORE: from there; again: what
                              has changed; --end ends copies of sessions that have ended
  end SESSION                 delete all that is stored of a session
  end --actor ID              delete the sessions of an actor`

const NO_BYTES = 'no snapshot, or too large to read' // stores return those without bytes
// What could move a cursor or turn a text around.
const UNPRINTABLE = /[\p{Cc}\p{Cs}\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu

/** Run `sessions` with these arguments. Throws CommandError. */
export async function sessions(
  [command, ...args]: string[],
  load: LoadCapabilities,
): Promise<void> {
  if ([command, ...args].includes('--help')) return console.log(USAGE)
  const [flag, text] = [{ type: 'boolean' }, { type: 'string' }] as const
  const words = { args, allowPositionals: true } as const
  if (command === 'list') {
    await list(load, parseArgs({ args, options: { json: flag } }).values.json)
  } else if (command === 'show') {
    const { values, positionals } = parseArgs({ ...words, options: { json: flag } })
    await show(load, take(positionals, 'SESSION')[0], values.json)
  } else if (command === 'restore') {
    await restore(load, ...take(parseArgs(words).positionals, 'SESSION', 'CHECKPOINT'))
  } else if (command === 'copy') {
    const options = { to: text, from: text, end: flag }
    const { values, positionals } = parseArgs({ ...words, options })
    for (const id of positionals) take([id], 'SESSION')
    await copy(load, positionals, values)
  } else if (command === 'end') {
    const { values, positionals } = parseArgs({ ...words, options: { actor: text } })
    if (values.actor === undefined) await end(load, take(positionals, 'SESSION')[0])
    else await endAll(load, values.actor)
  } else {
    const what = command ? `No such command '${command}'.` : 'Missing command.'
    throw new CommandError(`${what}\n${USAGE}`, 2)
  }
}

async function list(load: LoadCapabilities, asJson = false): Promise<void> {
  const ids = await withStore(load, ({ store }) => store.sessions())
  const lines = [...ids, `${ids.length} session${ids.length === 1 ? '' : 's'}`]
  console.log(asJson ? JSON.stringify({ sessions: ids }) : lines.join('\n'))
}

async function show(load: LoadCapabilities, session: string, asJson = false): Promise<void> {
  const report = await withStore(load, async ({ store, settings }) => {
    const stored = await store.load(session)
    const checkpoints = []
    for (const id of await store.checkpoints(session)) {
      const snapshot = await store.loadCheckpoint(session, id)
      checkpoints.push({ id, ...summarize(snapshot ?? '', settings) })
    }
    const quarantined = await store.quarantined(session)
    const isStored = stored || checkpoints.length > 0 || quarantined.length > 0
    if (!isStored) throw new CommandError(`Nothing is stored for session ${session}.`)
    const latest = summarize(stored?.snapshot ?? '', settings)
    return { session_id: session, stored: stored !== null, ...latest, checkpoints, quarantined }
  })
  const { stored, turn, checkpoints, quarantined } = report
  const isForeign = report.foreign_format !== null
  const failure = isForeign ? ', so turns are refused' : ', so the next turn quarantines it'
  const outcome = turn === null ? failure : ''
  const lines = [`session ${session}: ${stored ? describeTurn(report) + outcome : 'no turn'}`]
  for (const kept of checkpoints) lines.push(`checkpoint ${kept.id}: ${describeTurn(kept)}`)
  for (const name of quarantined) lines.push(`quarantined ${name}`)
  console.log(asJson ? JSON.stringify(report) : lines.join('\n'))
}

async function restore(load: LoadCapabilities, session: string, checkpoint = ''): Promise<void> {
  const turn = await withStore(
    load,
    async ({ store, settings }) => {
      const { maxSnapshotBytes } = settings
      const kept = await store.loadCheckpoint(session, checkpoint)
      const snapshot = kept === null ? null : readSnapshot(kept, maxSnapshotBytes)
      if (snapshot === null) {
        const what = kept === null ? 'has no checkpoint' : 'has an unreadable checkpoint'
        throw new CommandError(`Session ${session} ${what} ${checkpoint}.`)
      }
      const stored = await store.load(session)
      let expected = stored?.revision ?? null
      if (stored && readSnapshot(stored.snapshot, maxSnapshotBytes) === null) {
        await store.quarantine(session, stored.revision) // a save would overwrite it
        expected = null
      }
      const value = JSON.parse(snapshot)
      // The turns keep their idempotency keys: a retry repeats the reply of a turn that is there.
      value.app_data.restored_from = checkpoint
      delete value.app_data.pending // the tools of a turn that waited then may have run
      await store.save(session, JSON.stringify(value), expected)
      return value.app_data.turn
    },
    true,
  )
  console.log(`Session ${session} is back at turn ${turn}.`)
}

type CopyOptions = { to?: string; from?: string; end?: boolean }

async function copy(load: LoadCapabilities, ids: string[], options: CopyOptions): Promise<void> {
  const { to, from, end: ends = false } = options
  const name = to || from
  if (!name || (to && from)) {
    throw new CommandError('Name a collection or a folder with --to or --from.', 2)
  }
  const report = await withStore(
    load,
    async ({ store, settings, capability }) => {
      const other = name.includes('/') ? filesIn(name, !!to) : storeOf(capability, name, !!to)
      const [source, target] = to ? [store, other] : [other, store]
      const work = new Copy(source, target, settings.checkpoints, ends).run(ids)
      return await work.finally(() => other.close())
    },
    !to,
  )
  const count = ({ length }: string[]) => `${length} session${length === 1 ? '' : 's'}`
  const { copied, same, continued, ended, failed } = report
  console.log(`${count(copied)} copied, ${same.length} had not changed.`)
  if (continued.length > 0) {
    const what = 'continued there, and left as they are'
    console.log(`${count(continued)} ${what}: ${continued.join(', ')}`)
  }
  if (ended.length > 0) {
    const what = ends ? 'ended, and now the copies, too' : 'ended: --end ends the copies'
    console.log(`${count(ended)} ${what}: ${ended.join(', ')}`)
  }
  const lines = [...failed].map(([id, why]) => `session ${id} was not copied: ${why}`)
  if (lines.length > 0) throw new CommandError(lines.join('\n'))
}

function filesIn(folder: string, isTarget: boolean): SessionFiles {
  if (!isTarget && !existsSync(folder)) throw new CommandError(`There is no folder ${folder}.`)
  return new SessionFiles(folder)
}

/** Return the store that another collection declares. */
function storeOf(capability: Store, id: string, isTarget: boolean): DurableStore {
  const { declarations, settings } = capability
  const collection = declarations.project.collections.get(id)
  if (!collection || !storesSessions(collection)) {
    throw new CommandError(`collections/${id}.collection.md declares no session store.`)
  }
  if (collection === capability.collection) {
    throw new CommandError(`Collection ${id} is where the sessions are.`)
  }
  const { type } = collection.backend
  if (type !== capability.collection?.backend.type) {
    const what = `This project has no code for backend type ${type}`
    throw new CommandError(`${what}: copy to a folder, and from there after the update.`)
  }
  if (isTarget && !collection.writeback.enabled) {
    throw new CommandError(`Collection ${id} is read-only.`)
  }
  const [unset] = unsetVariables(settings, collection)
  if (unset) throw new CommandError(`There is no store until ${unset} is set.`)
  return capability.connect(collection)
}

async function end(load: LoadCapabilities, session: string): Promise<void> {
  await withStore(load, ({ store }) => store.end(session), true)
  console.log(`Session ${session} has ended.`)
}

async function endAll(load: LoadCapabilities, actor: string): Promise<void> {
  if (!ACTOR_ID.test(actor)) throw new CommandError(ERRORS.invalid_actor[1], 2)
  let count = 0
  await withStore(
    load,
    async ({ store }) => {
      for (const id of await store.sessions()) {
        const owner = await ownerOf(store, id)
        if (owner === UNREADABLE) {
          console.error(`Note: session ${id} is unreadable, so it may belong to anyone.`)
        } else if (owner === actor) {
          await store.end(id)
          console.log(`Session ${id} has ended.`)
          count++
        }
      }
    },
    true,
  )
  console.log(`${count} sessions of actor ${actor} have ended.`)
}

/** Return the positional arguments, valid; throw where one is missing or too many are given. */
function take(given: string[], ...names: string[]): [session: string, checkpoint?: string] {
  const missing = names[given.length]
  if (missing) throw new CommandError(`Missing argument '${missing}'.`, 2)
  const surplus = given[names.length]
  if (surplus !== undefined) throw new CommandError(`Unexpected argument '${surplus}'.`, 2)
  const [session = '', checkpoint] = given
  if (!SESSION_ID.test(session)) throw new CommandError(ERRORS.invalid_session_id[1], 2)
  if (checkpoint === undefined) return [session]
  if (!UUID7.test(checkpoint)) throw new CommandError('A checkpoint is a UUIDv7 in lower case.', 2)
  return [session, checkpoint]
}

type Opened = { store: DurableStore; settings: StoreSettings; capability: Store }

/** Return what `work` returns; a failure of the store becomes a CommandError. */
async function withStore<T>(
  load: LoadCapabilities,
  work: (opened: Opened) => Promise<T>,
  isChange = false,
): Promise<T> {
  const capability = (await load()).find((capability) => capability instanceof Store)!
  refuseErrors(capability.declarations.check())
  const { collection, isWritable, settings, store, unset } = capability
  if (!collection) throw new CommandError('There is no store: no collection in use keeps sessions.')
  if (!store) throw new CommandError(`There is no store until ${unset} is set.`)
  if (isChange && !isWritable) {
    throw new CommandError(`Collection ${collection.collection_id} is read-only.`)
  }
  try {
    return await work({ store, settings, capability })
  } catch (error) {
    if (error instanceof Conflict) {
      throw new CommandError('Another process continued this session; nothing was changed.')
    }
    if (!(error instanceof StoreUnavailable || error instanceof Unsupported)) throw error
    throw new CommandError(error.message)
  } finally {
    await store.close()
  }
}

type Summary = ReturnType<typeof summarize>

/** What is shown of a snapshot; its turn is null where it cannot be read. */
function summarize(snapshot: string, { maxSnapshotBytes }: StoreSettings) {
  const bytes = Buffer.byteLength(snapshot)
  const text = readSnapshot(snapshot, maxSnapshotBytes)
  if (text === null) {
    const none = { turn: null, actor: null, created_at: null, restored_from: null }
    return { ...none, summary_before: null, foreign_format: foreignFormat(snapshot), bytes }
  }
  const { created_at, app_data, data } = JSON.parse(text)
  const { turn, actor, restored_from = null, turns } = app_data
  const time = String(created_at).replace(/\+00:00$/, 'Z')
  // Messages in front of the first turn are a summary.
  const at = turns ? (turns[0]?.at ?? data.messages.length) : 0
  const summary_before: number | null = at > 0 ? turn - turns.length + 1 : null
  const fields = { turn, actor, created_at: time, restored_from, summary_before }
  return { ...fields, foreign_format: null, bytes }
}

/** Return a summary as one line, without what could move a cursor. */
function describeTurn(summary: Summary): string {
  const { turn, actor, created_at: time, restored_from: origin, summary_before: before } = summary
  const { bytes, foreign_format: reason } = summary
  if (turn === null) {
    const size = bytes > 0 ? `${bytes} bytes` : NO_BYTES
    return reason === null ? `unreadable, ${size}` : `unreadable, ${size}: ${reason}`
  }
  const who = actor === null ? 'no actor' : `actor ${actor}`
  const line = printable(`turn ${turn}, ${who}, ${time}, ${bytes} bytes`)
  const restored = origin ? `${line}, restored from ${printable(origin)}` : line
  return before ? `${restored}, with a summary before turn ${before}` : restored
}

function printable(value: unknown): string {
  const text = [...String(value).replace(UNPRINTABLE, '\ufffd')]
  return text.length <= 80 ? text.join('') : `${text.slice(0, 79).join('')}…`
}
