// The commands `effects list | run | settle`.

import { parseArgs } from 'node:util'

import type { App } from '../capability.ts'
import { AgentError, ERRORS, SESSION_ID } from '../contract.ts'
import { CommandError } from '../findings.ts'
import { InProcess } from '../sessions/session_store.ts'
import { Sessions, type Snapshot } from '../sessions/sessions.ts'
import { Effects } from './capability.ts'
import { now, type Outbox, type Outcome } from './outbox.ts'
import { Section, SKEW_SECONDS } from './records.ts'
import type { EffectSettings } from './settings.ts'

const USAGE = `Usage: node src/main.ts effects COMMAND

  list [SESSION]...           print the open and failed effects of the named sessions, or of all;
                              a started effect is unknown when its time limit has passed
    --arguments               also print the arguments
    --json                    print one JSON object
  run [SESSION]...            run the scheduled effects of the named sessions, or of all, for a
                              job; exit with 1 if any remain
  settle KEY DECISION         settle an effect: it is \`done\`, may run again (\`retry\`), or must
                              not run (\`drop\`); \`retry\` lets the model's next identical call
                              run, or runs a scheduled effect again
    --session ID              the session of the effect; saves the search
    --result TEXT             the result for the model, with \`done\``

const NO_STORE =
  'Sessions are in the process of the agent, so other processes cannot read its effects.'
const NAME_THEM = 'Name the sessions (`settle`: --session).'
const DECISIONS = ['done', 'retry', 'drop']

/** Run `effects` with these arguments. Throws CommandError. */
export async function effects(
  [command, ...args]: string[],
  app: App<EffectSettings>,
): Promise<void> {
  if ([command, ...args].includes('--help')) return console.log(USAGE)
  const [flag, text] = [{ type: 'boolean' }, { type: 'string' }] as const
  const positional = { args, allowPositionals: true } as const
  if (command === 'list') {
    const options = { arguments: flag, json: flag }
    const { values, positionals } = parseArgs({ ...positional, options })
    await list(app, checkIds(positionals), values)
  } else if (command === 'run') {
    await run(app, checkIds(parseArgs(positional).positionals))
  } else if (command === 'settle') {
    const options = { session: text, result: text }
    const { values, positionals } = parseArgs({ ...positional, options })
    const [key, decision = '', ...more] = positionals
    if (!key) throw new CommandError("Missing argument 'KEY'.", 2)
    if (!DECISIONS.includes(decision) || more.length > 0) {
      throw new CommandError(`Name one decision: ${DECISIONS.join(', ')}.`, 2)
    }
    const ids = checkIds(values.session === undefined ? [] : [values.session])
    await settle(app, ids, key, decision, values.result)
  } else {
    const message = command ? `No such command '${command}'.` : 'Missing command.'
    throw new CommandError(`${message}\n${USAGE}`, 2)
  }
}

/** An open or failed effect. */
interface Row {
  session_id: string
  key: string
  status: string
  tool: string
  turn: number
  /** In seconds. */
  age: number
  arguments?: object
}

interface ListOptions {
  readonly arguments?: boolean
  readonly json?: boolean
}

async function list(app: App<EffectSettings>, ids: string[], options: ListOptions): Promise<void> {
  const rows = await withOutbox(app, (outbox) => rowsOf(outbox, ids))
  if (!options.arguments) for (const row of rows) delete row.arguments
  if (options.json) return console.log(JSON.stringify({ effects: rows }))
  for (const { session_id: id, key, status, tool, turn, age, arguments: args } of rows) {
    const words = [key, status, tool, `session=${id}`, `turn=${turn}`, `age=${age}s`]
    if (args) words.push(JSON.stringify(args))
    console.log(words.join(' '))
  }
  console.log(`${rows.length} effect${rows.length === 1 ? '' : 's'}`)
}

async function rowsOf({ sessions }: Outbox, ids: string[]): Promise<Row[]> {
  const rows: Row[] = []
  for await (const [id, snapshot] of snapshots(sessions, ids)) {
    for (const call of new Section(snapshot.app_data.records ?? {}).calls) {
      if (call.status === 'done') continue
      const isLate = call.status === 'started' && now() > call.until + SKEW_SECONDS
      const { key, tool, turn, arguments: args } = call
      const status = isLate ? 'unknown' : call.status
      const age = Math.floor(now() - call.at)
      rows.push({ session_id: id, key, status, tool, turn, age, arguments: args })
    }
  }
  return rows
}

async function run(app: App<EffectSettings>, ids: string[]): Promise<void> {
  await app.load.agent() // registers the effects
  const remaining = await withOutbox(app, async (outbox) => {
    const sessions: string[] = []
    for await (const [id] of snapshots(outbox.sessions, ids)) {
      let pause: number | null = 0
      try {
        while (pause === 0) pause = await outbox.step(id)
      } catch (error) {
        if (!(error instanceof AgentError)) throw error
        // The next session does not depend on it.
        console.error(`session ${id}: ${error.detail || error.message}`)
      }
      if (pause !== null) sessions.push(id)
    }
    return sessions
  })
  for (const id of remaining) console.log(`session ${id} still has scheduled effects`)
  if (remaining.length > 0) throw new CommandError('Run this again later.')
}

async function settle(
  app: App<EffectSettings>,
  ids: string[],
  key: string,
  decision: string,
  result = '',
): Promise<void> {
  const tool = await withOutbox(app, async (outbox) => {
    for await (const [id, snapshot] of snapshots(outbox.sessions, ids)) {
      const { calls } = new Section(snapshot.app_data.records ?? {})
      const call = calls.find((other) => other.key === key)
      if (!call) continue
      if (call.status === 'done') throw new CommandError(`Effect ${key} is done.`)
      outbox.outcomesOf(id).set(key, outcomeOf(decision, call.kind === 'once', result))
      await outbox.save(id)
      return call.tool
    }
    throw new CommandError(`No session has an effect ${key}.`)
  })
  console.log(`Effect ${key} of ${tool} is settled: ${decision}.`)
}

function outcomeOf(decision: string, isOnce: boolean, result: string): Outcome {
  if (decision === 'done') return { status: 'done', result, wanted: isOnce }
  if (decision === 'retry') return { status: isOnce ? 'removed' : 'scheduled' }
  const reason = 'A person decided that this must not run.'
  return { status: 'failed', result: reason, wanted: isOnce }
}

/** Yield the named sessions that exist, or all. */
async function* snapshots(
  { store }: Sessions,
  ids: readonly string[],
): AsyncGenerator<[string, Snapshot]> {
  for (const id of ids) {
    const stored = await store.load(id)
    if (stored?.snapshot) yield [id, JSON.parse(stored.snapshot)]
  }
  if (ids.length > 0) return
  const stored = store.snapshots()[Symbol.asyncIterator]()
  for (;;) {
    const next = await stored.next().catch((error) => {
      if (!(error instanceof AgentError)) throw error
      const reason = error.detail || error.message
      throw new CommandError(`The sessions cannot be listed (${reason}). ${NAME_THEM}`)
    })
    if (next.done) return
    const [id, snapshot] = next.value
    yield [id, JSON.parse(snapshot)]
  }
}

function checkIds(ids: string[]): string[] {
  const isInvalid = ids.some((id) => !SESSION_ID.test(id))
  if (isInvalid) throw new CommandError(ERRORS.invalid_session_id[1], 2)
  return ids
}

/** Return the result of `use`; throw a failure of the store as CommandError. */
async function withOutbox<T>(
  app: App<EffectSettings>,
  use: (outbox: Outbox) => Promise<T>,
): Promise<T> {
  const capabilities = await app.loadCapabilities()
  const own = capabilities.find((capability) => capability instanceof Effects)!
  const { outbox, settings } = own
  for (const capability of capabilities) {
    const store = capability.sessionStore?.()
    if (!store || store instanceof InProcess) continue
    outbox.sessions = new Sessions(settings, store, [own])
    try {
      return await use(outbox)
    } catch (error) {
      if (!(error instanceof AgentError)) throw error
      throw new CommandError(error.detail || error.message)
    } finally {
      await own.close()
      await capability.close?.()
    }
  }
  throw new CommandError(NO_STORE)
}
