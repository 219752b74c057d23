// The commands `sessions list | show | restore | end`: the store, without a turn.

import { parseArgs } from 'node:util'

import { ERRORS, SESSION_ID } from '../contract.ts'
import { Parts } from '../parts.ts'
import { readSettings } from '../settings.ts'
import { type Backend, Conflict, Unavailable, Unsupported } from './backends.ts'
import { UUID7 } from './operations.ts'
import { describeTurn, reportOf, takeBack } from './session_tools.ts'

const CONFLICT = 'Another instance went on with this session; nothing was changed.'

/** What ends a command: what standard error says, and the exit code. */
export class Refusal extends Error {
  readonly code: number

  constructor(message: string, code = 1) {
    super(message)
    this.code = code
  }
}

// What `--help` prints, as the first word is none of a subcommand or one of them.
const USAGE = 'Usage: node src/memory/main.ts sessions'
const JSON_HELP = '\n\nOptions:\n  --json  Print one JSON object.'
const HELP: Record<string, string> = {
  '--help': `${USAGE} COMMAND

  List the sessions in the store, show one, take one back, or end one.

Commands:
  list [--json]               Print the ids of all sessions.
  show SESSION [--json]       Print what is stored of SESSION.
  restore SESSION CHECKPOINT  Take SESSION back to CHECKPOINT.
  end SESSION                 Delete all that is stored of SESSION.`,
  list: `${USAGE} list [--json]\n\n  Print the ids of all sessions.${JSON_HELP}`,
  show: `${USAGE} show SESSION [--json]

  Print what is stored of SESSION: its last turn, its checkpoints, and what
  was set aside.${JSON_HELP}`,
  restore: `${USAGE} restore SESSION CHECKPOINT

  Take SESSION back to CHECKPOINT, an id that \`sessions show\` prints.`,
  end: `${USAGE} end SESSION\n\n  Delete all that is stored of SESSION.`,
}

/** Run `sessions` with these arguments. Throws Refusal, and for an option that it lacks. */
export async function sessions([command, ...args]: string[], usage: string): Promise<void> {
  const flag = { json: { type: 'boolean' } } as const
  const help = [command, ...args].includes('--help') && HELP[command ?? '']
  if (help) return console.log(help)
  if (command === 'list') {
    const { json } = parseArgs({ args, options: flag }).values
    await list(json)
  } else if (command === 'show') {
    const { values, positionals } = parseArgs({ args, options: flag, allowPositionals: true })
    const [session] = take(positionals, 'SESSION')
    await show(session, values.json)
  } else if (command === 'restore') {
    const { positionals } = parseArgs({ args, allowPositionals: true })
    const [session, checkpoint = ''] = take(positionals, 'SESSION', 'CHECKPOINT')
    const turn = await withStore((store) => takeBack(store, session, checkpoint), true)
    console.log(`Session ${session} is back at turn ${turn}.`)
  } else if (command === 'end') {
    const [session] = take(parseArgs({ args, allowPositionals: true }).positionals, 'SESSION')
    await withStore((store) => store.end(session), true, session)
    console.log(`Session ${session} has ended.`)
  } else {
    throw new Refusal(
      `${command ? `No such command '${command}'.` : 'Missing command.'}\n${usage}`,
      2,
    )
  }
}

async function list(asJson = false): Promise<void> {
  const ids = (await withStore((store) => store.sessions())).toSorted()
  const lines = [...ids, `${ids.length} session${ids.length === 1 ? '' : 's'}`].join('\n')
  console.log(asJson ? JSON.stringify({ sessions: ids }) : lines)
}

async function show(session: string, asJson = false): Promise<void> {
  const report = await withStore((store) => reportOf(store, session))
  const { bytes, checkpoints, set_aside: asides } = report
  if (bytes + checkpoints.length + asides.length === 0) {
    throw new Refusal(`Nothing is stored of session ${session}.`)
  }
  const lines = [`session ${session}: ${bytes > 0 ? describeTurn(report) : 'no turn'}`]
  for (const one of checkpoints) lines.push(`checkpoint ${one.id}: ${describeTurn(one)}`)
  for (const name of asides) lines.push(`set aside ${name}`)
  console.log(asJson ? JSON.stringify(report) : lines.join('\n'))
}

/** The arguments of these names, valid. */
function take(given: string[], ...names: string[]): [session: string, checkpoint?: string] {
  const missing = names[given.length]
  if (missing) throw new Refusal(`Missing argument '${missing}'.`, 2)
  const surplus = given[names.length]
  if (surplus !== undefined) throw new Refusal(`Got unexpected extra argument (${surplus})`, 2)
  const [session = '', checkpoint] = given
  if (!SESSION_ID.test(session)) throw new Refusal(ERRORS.invalid_session_id[1], 2)
  if (checkpoint !== undefined && !UUID7.test(checkpoint)) {
    throw new Refusal('A checkpoint is a UUIDv7 in lower case.', 2)
  }
  return checkpoint === undefined ? [session] : [session, checkpoint]
}

/** What `work` returns; its failure becomes a Refusal. */
async function withStore<T>(
  work: (store: Backend) => Promise<T>,
  isChange = false,
  ended = '',
): Promise<T> {
  const [settings, found] = readSettings()
  found.push(...(await Parts.check(settings)))
  const errors = found.filter((one) => one.severity === 'error')
  if (errors.length > 0) throw new Refusal(errors.map((one) => one.message).join('\n'))
  const parts = new Parts(settings)
  try {
    const { collection, store } = parts
    if (!store || !collection) {
      throw new Unsupported(`There is no store. ${(await parts.contacts())[1]}.`)
    }
    if (isChange && !collection.writeback.enabled) {
      throw new Unsupported(`Collection ${collection.collection_id} is read-only.`)
    }
    const result = await work(store)
    if (ended) for (const mirror of parts.mirrors) mirror.end(ended)
    return result
  } catch (error) {
    if (error instanceof Conflict) throw new Refusal(CONFLICT)
    if (!(error instanceof Unavailable || error instanceof Unsupported)) throw error
    throw new Refusal(error.message)
  } finally {
    await parts.close()
  }
}
