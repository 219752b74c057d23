// The commands `sessions list | show | restore | copy | sweep | end`.

import { existsSync } from 'node:fs'
import { parseArgs } from 'node:util'

import type { LoadCapabilities } from '../capability.ts'
import { storesSessions } from '../collections/check.ts'
import { unsetVariables } from '../collections/secrets.ts'
import { ACTOR_ID, ERRORS, SESSION_ID } from '../contract.ts'
import { CommandError, refuseErrors } from '../findings.ts'
import { Conflict, type DurableStore, StoreUnavailable } from './base.ts'
import { TooLarge, Unsupported, UUID7 } from './base.ts'
import { Store } from './capability.ts'
import { Copy } from './copying.ts'
import { SessionFiles } from './files.ts'
import type { StoreSettings } from './settings.ts'
import { foreignFormat, ownerOf, readSnapshot, UNREADABLE } from './snapshot.ts'

const USAGE = `Usage: node src/main.ts sessions COMMAND

  list [--json]               print the ids of all sessions
  show SESSION [--json]       print the last turn, checkpoints and quarantined snapshots of a
                              session
  restore SESSION CHECKPOINT  restore a session from a checkpoint, an id that \`show\` prints
  copy [SESSION]... --to STORE
                              copy the named sessions, or all, to a collection or to a folder
                              such as ./kept, also while turns run; run it again to copy changes
    --from STORE              copy from this collection or folder
    --end                     also end copies of ended sessions
  sweep                       delete the files that no turn refers to; the agent deletes most of
                              them itself; uploads of the last hour stay, because a running turn
                              may need them
  end SESSION                 delete all data of a session
  end --actor ID              delete the sessions of an actor`

const NO_BYTES = ', no snapshot, or too large to read' // of a checkpoint, both are an empty string
const UNREAD = 'it is too large to read'
// Characters that move the cursor or change the direction of text.
const UNPRINTABLE = /[\p{Cc}\p{Cs}\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu

/** Run `sessions` with these arguments. Throws CommandError. */
export async function sessions(
  [command, ...args]: string[],
  load: LoadCapabilities,
): Promise<void> {
  if ([command, ...args].includes('--help')) return console.log(USAGE)
  const [flag, text] = [{ type: 'boolean' }, { type: 'string' }] as const
  const positional = { args, allowPositionals: true } as const
  if (command === 'list') {
    await list(load, parseArgs({ args, options: { json: flag } }).values.json)
  } else if (command === 'show') {
    const { values, positionals } = parseArgs({ ...positional, options: { json: flag } })
    await show(load, validate(positionals, 'SESSION')[0], values.json)
  } else if (command === 'restore') {
    await restore(load, ...validate(parseArgs(positional).positionals, 'SESSION', 'CHECKPOINT'))
  } else if (command === 'copy') {
    const options = { to: text, from: text, end: flag }
    const { values, positionals } = parseArgs({ ...positional, options })
    for (const id of positionals) validate([id], 'SESSION')
    await copy(load, positionals, values)
  } else if (command === 'sweep') {
    parseArgs({ args })
    await sweep(load)
  } else if (command === 'end') {
    const { values, positionals } = parseArgs({ ...positional, options: { actor: text } })
    if (values.actor === undefined) await end(load, validate(positionals, 'SESSION')[0])
    else await endAll(load, values.actor)
  } else {
    const message = command ? `No such command '${command}'.` : 'Missing command.'
    throw new CommandError(`${message}\n${USAGE}`, 2)
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
    if (stored instanceof TooLarge) latest.foreign_format = UNREAD
    return { session_id: session, stored: stored !== null, ...latest, checkpoints, quarantined }
  })
  const { stored, turn, checkpoints, quarantined } = report
  const isForeign = report.foreign_format !== null
  const failure = isForeign ? ', so turns are refused' : ', so the next turn quarantines it'
  const outcome = turn === null ? failure : ''
  const lines = [`session ${session}: ${stored ? describeTurn(report) + outcome : 'no turn'}`]
  for (const checkpoint of checkpoints) {
    lines.push(`checkpoint ${checkpoint.id}: ${describeTurn(checkpoint)}`)
  }
  for (const name of quarantined) lines.push(`quarantined ${name}`)
  console.log(asJson ? JSON.stringify(report) : lines.join('\n'))
}

async function restore(load: LoadCapabilities, session: string, checkpoint = ''): Promise<void> {
  const turn = await withStore(
    load,
    async ({ store, settings }) => {
      const { maxSnapshotBytes } = settings
      const copy = await store.loadCheckpoint(session, checkpoint)
      const snapshot = copy === null ? null : readSnapshot(copy, maxSnapshotBytes)
      if (snapshot === null) {
        const problem = copy === null ? 'has no checkpoint' : 'has an unreadable checkpoint'
        throw new CommandError(`Session ${session} ${problem} ${checkpoint}.`)
      }
      const stored = await store.load(session)
      let expected = stored?.revision ?? null
      if (stored && readSnapshot(stored.snapshot, maxSnapshotBytes) === null) {
        await store.quarantine(session, stored.revision) // a save would overwrite it
        expected = null
      }
      const value = JSON.parse(snapshot)
      // The turns keep their idempotency keys: a retry of a stored turn returns its reply.
      value.app_data.restored_from = checkpoint
      // The approved tools of that turn, and its effects, may have run since.
      delete value.app_data.pending
      delete value.app_data.records
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
  const { copied, unchanged, continued, ended, failed } = report
  console.log(`${count(copied)} copied, ${unchanged.length} unchanged.`)
  if (continued.length > 0) {
    const message = 'continued in the other store, so not overwritten'
    console.log(`${count(continued)} ${message}: ${continued.join(', ')}`)
  }
  if (ended.length > 0) {
    const message = ends ? 'ended, now also their copies' : 'ended; --end also ends their copies'
    console.log(`${count(ended)} ${message}: ${ended.join(', ')}`)
  }
  const lines = [...failed].map(([id, reason]) => `session ${id} was not copied: ${reason}`)
  if (lines.length > 0) throw new CommandError(lines.join('\n'))
}

function filesIn(folder: string, isTarget: boolean): SessionFiles {
  const isFolder = existsSync(`${folder}/.`)
  if (!isTarget && !isFolder) throw new CommandError(`There is no folder ${folder}.`)
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
    throw new CommandError(`Collection ${id} already stores these sessions. Name another.`)
  }
  const { type } = collection.backend
  if (type !== capability.collection?.backend.type) {
    const message = `This project has no code for backend type ${type}. Copy to a folder`
    throw new CommandError(
      `${message}, switch the project to that type, then copy from the folder.`,
    )
  }
  if (isTarget && !collection.writeback.enabled) {
    throw new CommandError(`Collection ${id} is read-only.`)
  }
  const [unset] = unsetVariables(settings, collection)
  if (unset) throw new CommandError(`No store is configured: set ${unset}.`)
  return capability.connect(collection)
}

async function sweep(load: LoadCapabilities): Promise<void> {
  const count = await withStore(
    load,
    async ({ store }) => {
      const ids = await store.sessions()
      for (const id of ids) await store.trimFiles(id)
      return ids.length
    },
    true,
  )
  console.log(`The files of ${count} session${count === 1 ? '' : 's'} are swept.`)
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
          const message = 'is unreadable, so its actor is unknown. It was not ended.'
          console.error(`Note: session ${id} ${message}`)
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

/** Validate and return the positional arguments. Throws CommandError. */
function validate(args: string[], ...names: string[]): [session: string, checkpoint?: string] {
  const missing = names[args.length]
  if (missing) throw new CommandError(`Missing argument '${missing}'.`, 2)
  const surplus = args[names.length]
  if (surplus !== undefined) throw new CommandError(`Unexpected argument '${surplus}'.`, 2)
  const [session = '', checkpoint] = args
  if (!SESSION_ID.test(session)) throw new CommandError(ERRORS.invalid_session_id[1], 2)
  if (checkpoint === undefined) return [session]
  if (!UUID7.test(checkpoint)) throw new CommandError('A checkpoint is a UUIDv7 in lower case.', 2)
  return [session, checkpoint]
}

type Opened = { store: DurableStore; settings: StoreSettings; capability: Store }

/** Return the result of `work`; throw a failure of the store as CommandError. */
async function withStore<T>(
  load: LoadCapabilities,
  work: (opened: Opened) => Promise<T>,
  isChange = false,
): Promise<T> {
  const capability = (await load()).find((capability) => capability instanceof Store)!
  refuseErrors(capability.declarations.check())
  const { collection, isWritable, settings, store, unset } = capability
  if (!collection) throw new CommandError('No collection of this agent stores sessions.')
  if (!store) throw new CommandError(`No store is configured: set ${unset}.`)
  if (isChange && !isWritable) {
    throw new CommandError(`Collection ${collection.collection_id} is read-only.`)
  }
  try {
    return await work({ store, settings, capability })
  } catch (error) {
    if (error instanceof Conflict) {
      throw new CommandError(
        'Another process changed this session. Nothing was written; run the command again.',
      )
    }
    if (!(error instanceof StoreUnavailable || error instanceof Unsupported)) throw error
    throw new CommandError(error.message)
  } finally {
    await store.close()
  }
}

type Summary = ReturnType<typeof summarize>

/** Return the fields of a snapshot to show; `turn` is null for an unreadable snapshot. */
function summarize(snapshot: string, { maxSnapshotBytes }: StoreSettings) {
  const bytes = Buffer.byteLength(snapshot)
  const text = readSnapshot(snapshot, maxSnapshotBytes)
  if (text === null) {
    const empty = { turn: null, actor: null, created_at: null, restored_from: null }
    return { ...empty, summary_before: null, foreign_format: foreignFormat(snapshot), bytes }
  }
  const { created_at, app_data, data } = JSON.parse(text)
  const { turn, actor, restored_from = null, turns } = app_data
  const time = String(created_at).replace(/\+00:00$/, 'Z')
  // Messages before the first turn are a summary.
  const at = turns ? (turns[0]?.at ?? data.messages.length) : 0
  const summary_before: number | null = at > 0 ? turn - turns.length + 1 : null
  const fields = { turn, actor, created_at: time, restored_from, summary_before }
  return { ...fields, foreign_format: null as string | null, bytes }
}

/** Return a summary on one line, without terminal control characters. */
function describeTurn(summary: Summary): string {
  const { turn, actor, created_at: time, restored_from: origin, summary_before: before } = summary
  const { bytes, foreign_format: reason } = summary
  if (turn === null) {
    const size = bytes > 0 ? `, ${bytes} bytes` : ''
    return reason === null ? `unreadable${size || NO_BYTES}` : `unreadable${size}: ${reason}`
  }
  const identity = actor === null ? 'no actor' : `actor ${actor}`
  const line = printable(`turn ${turn}, ${identity}, ${time}, ${bytes} bytes`)
  const restored = origin ? `${line}, restored from ${printable(origin)}` : line
  return before ? `${restored}, with a summary before turn ${before}` : restored
}

function printable(value: unknown): string {
  return String(value).replace(UNPRINTABLE, '\ufffd')
}
