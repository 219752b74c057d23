// A conversation in the terminal, or from a pipe, one prompt per line.

import { randomUUID } from 'node:crypto'
import { parseArgs } from 'node:util'

import { explain } from './advice.ts'
import { PROJECT } from './capabilities.ts'
import { ACTOR_ID, checkPrompt, ERRORS, SESSION_ID, Turn } from './contract.ts'
import { CommandError } from './findings.ts'
import { asAgentError, CONTROL, surviveLateErrors } from './log.ts'
import { BOLD } from './markdown.ts'
import type { Runtime } from './runtime.ts'
import { type Message, type Session, textOf } from './sessions.ts'
import { readSettings } from './settings.ts'
import { Keyboard, refuse, Reply, Screen, shorten } from './terminal.ts'

const HELP = `/new      begin a new session
/retry    run the last turn again, and replace it
/undo     delete the last turn
/history  list the messages of the session
/model    print which model answers
/tools    list the tools of the agent
/session  print the id of the session
/quit     leave, as exit, quit and Ctrl-D do
Ctrl-C cancels the running turn, clears a half-typed line, or exits on an empty line.`

/** Talk to the agent in this terminal, or from a pipe; with a question: print the reply. */
export async function chat(args: string[]): Promise<void> {
  const text = { type: 'string' } as const
  const options = { session: text, actor: text }
  const { values, positionals } = parseArgs({ args, options, allowPositionals: true })
  const [question, ...more] = positionals
  let { session: sessionId = randomUUID() as string } = values
  let { actor = null } = values
  if (more.length > 0) throw new CommandError('Put the question in quotes.', 2)
  if (!SESSION_ID.test(sessionId)) throw new CommandError(ERRORS.invalid_session_id[1], 2)
  if (actor !== null && !ACTOR_ID.test(actor)) throw new CommandError(ERRORS.invalid_actor[1], 2)
  const isOnce = question !== undefined
  const screen = new Screen(isOnce)
  if (screen.isLive && !isOnce) {
    const [{ model }] = readSettings() // at once: a framework takes seconds to load
    const who = `${PROJECT}, ${model === 'offline' ? 'offline model' : model}`
    const line = screen.wrap(`${who}. /help lists the commands; Ctrl-D leaves.`)
    console.log(line.replace(who, () => screen.style(who, BOLD)))
  }
  const { startRuntime } = await import('./runtime.ts')
  const [runtime, { takeTurn }] = [await startRuntime(), await import('./turn.ts')]
  surviveLateErrors()
  if (runtime.actorRequired && actor === null) {
    actor = 'local-user'
    console.log(`You are ${actor}; choose another with \`-- --actor ID\`.`)
  }
  const keyboard = isOnce ? null : new Keyboard(screen)
  const read = async () => (keyboard ? keyboard.readPrompt() : null)
  let [done, failed] = [0, 0]
  for (let line = question ?? (await read()); line !== null; line = await read()) {
    const command = line.trim()
    if (['/quit', 'exit', 'quit'].includes(command) && !isOnce) break
    if (command === '/help') {
      console.log(screen.wrap(HELP))
    } else if (command === '/new') {
      const before = sessionId
      ;[sessionId, done] = [randomUUID(), 0]
      console.log(`Started session ${sessionId} (previous: ${before}).`)
    } else if (command === '/session') {
      console.log(`This is session ${sessionId}.`)
    } else if (/^\/(?!(retry|undo|history|model|tools)$)\w*(\s|$)/.test(command)) {
      failed++ // a path has another slash
      console.log('No such command: /help lists them.')
    } else if (command || isOnce) {
      const [reply, controller] = [new Reply(screen), new AbortController()]
      const { signal } = controller
      if (keyboard) keyboard.turn = controller
      else process.once('SIGINT', () => controller.abort())
      try {
        const turn = new Turn({ sessionId, actor, key: null, prompt: '', emit: reply.show })
        if (command === '/undo') {
          const takeBack = (session: Session) => session.takeBack()
          const number = await runtime.sessions.open(sessionId, actor, signal, takeBack)
          reply.stopWaiting()
          console.log(`Turn ${number} was deleted.`)
          continue
        }
        if (['/history', '/model', '/tools'].includes(command)) {
          const lines = await lookUp(command, runtime, turn, screen.columns)
          reply.stopWaiting()
          screen.print(`${lines.join('\n').replace(CONTROL, '') || 'None.'}\n`)
          continue
        }
        if (command === '/retry') turn.replaces = 0
        else turn.prompt = checkPrompt(line, runtime.settings.maxPromptChars)
        const turns: Turn[] = []
        for (let next: Turn | undefined = turn; next;) {
          turns.push(next)
          const last = await reply.follow(takeTurn(runtime, next, signal))
          next = await runtime.ask(last, next, keyboard?.ask ?? refuse)
        }
        done++
        reply.end(turns)
      } catch (error) {
        reply.stopWaiting()
        reply.endLine()
        if (signal.aborted) {
          failed += isOnce ? 1 : 0
          if (screen.isPiped) break
          console.log('Interrupted: nothing of this turn was kept.')
          continue
        }
        failed++
        const failure = asAgentError(error)
        const why = `${failure.message} ${await explain(failure)}`
        console.log(why.trimEnd())
      } finally {
        reply.stopWaiting()
        if (keyboard) keyboard.turn = undefined
      }
    }
  }
  if (screen.isLive && !isOnce) screen.print('\x1b[?2004l')
  keyboard?.close()
  process.on('SIGINT', () => process.exit(130)) // who has left need not wait
  await runtime.close()
  const notice = done > 0 ? runtime.retentionNotice : 'Nothing was added to it.'
  if (!isOnce) console.log(`\nThis was session ${sessionId}. ${notice}`)
  process.exit(screen.isPiped && failed > 0 ? 1 : 0)
}

/** Return the lines that a command prints. */
async function lookUp(
  command: string,
  runtime: Runtime,
  { sessionId, actor }: Turn,
  columns: number,
): Promise<string[]> {
  if (command === '/model') {
    const lines = await runtime.describe('')
    return lines.filter((line) => line.includes(runtime.settings.model))
  }
  if (command === '/tools') {
    const { describeTools } = await import('./turn.ts')
    const tools = describeTools(runtime.tools())
    return tools.map(([name, text]) => `${name}: ${text.trim().split('\n')[0]}`)
  }
  const { data } = await runtime.sessions.read(sessionId, actor)
  const messages = data.messages as Message[]
  const texts = messages.map((message) => [message.role, textOf(message)] as const)
  const lines = texts.filter(([, text]) => text).map((line) => line.join(': '))
  return lines.map((line) => shorten(line, columns))
}
