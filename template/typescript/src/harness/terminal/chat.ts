// A conversation in the terminal, or from a pipe, one prompt per line.

import { randomUUID } from 'node:crypto'
import { parseArgs, styleText } from 'node:util'

import { explain } from '../models/advice.ts'
import { PROJECT } from '../enabled.ts'
import { ACTOR_ID, checkPrompt, ERRORS, SESSION_ID } from '../contract.ts'
import { Turn, TurnRequest } from '../contract.ts'
import type { App } from '../capability.ts'
import { CommandError } from '../findings.ts'
import { asAgentError, CONTROL, logging, surviveLateErrors } from '../log.ts'
import type { Runtime } from '../runtime.ts'
import { type Message, type Session, textOf } from '../sessions/sessions.ts'
import { Keyboard, refuse, Reply, Screen, shorten } from './terminal.ts'

interface Talk {
  app: App
  runtime: Runtime
  screen: Screen
  keyboard: Keyboard | undefined
  sessionId: string
  actor: string | null
  turns: number // of the session that ended well
  failures: number
  isOver: boolean
}
type Command = (talk: Talk, signal: AbortSignal) => string | Promise<string>

const COMMANDS: Record<string, [does: string, run?: Command]> = {
  '/new': ['begin a new session', startSession],
  '/retry': ['run the last turn again, and replace it'],
  '/undo': ['delete the last turn', undo],
  '/history': ['list the messages of the session', listMessages],
  '/model': ['print which model answers', describeModel],
  '/tools': ['list the tools of the agent', listTools],
  '/session': ['print the id of the session', ({ sessionId }) => `This is session ${sessionId}.`],
  '/help': ['list the commands', help],
  '/quit': ['leave, as exit, quit and Ctrl-D do'],
}
const LEAVE = ['/quit', 'exit', 'quit']
const KEYS = `In a terminal Tab completes a command, and Alt-Enter begins a new line of the prompt.
Ctrl-C cancels the running turn, clears a half-typed line, or exits on an empty line.`

/** Talk to the agent in this terminal, or from a pipe; with a question: print the reply. */
export async function chat(args: string[], app: App): Promise<void> {
  const text = { type: 'string' } as const
  const options = { session: text, actor: text }
  const { values, positionals } = parseArgs({ args, options, allowPositionals: true })
  const { session: sessionId = randomUUID() as string, actor = null } = values
  const [question, ...more] = positionals
  if (more.length > 0) throw new CommandError('Put the question in quotes.', 2)
  if (!SESSION_ID.test(sessionId)) throw new CommandError(ERRORS.invalid_session_id[1], 2)
  if (actor !== null && !ACTOR_ID.test(actor)) throw new CommandError(ERRORS.invalid_actor[1], 2)

  const isOnce = question !== undefined
  const screen = await Screen.open(isOnce)
  if (screen.isLive && !isOnce) greet(screen, app) // at once: a framework takes seconds to load
  const { startRuntime } = await import('../runtime.ts')
  const runtime = await startRuntime(app)
  await import('../turn.ts') // the framework, before the first prompt
  surviveLateErrors()
  logging.hasTurns = false
  const keyboard = isOnce ? undefined : new Keyboard(screen, Object.keys(COMMANDS))
  const counts = { turns: 0, failures: 0, isOver: false }
  const talk: Talk = { app, runtime, screen, keyboard, sessionId, actor, ...counts }
  if (runtime.actorRequired && actor === null) {
    talk.actor = 'local-user'
    console.log(`You are ${talk.actor}; choose another with \`-- --actor ID\`.`)
  }
  if (isOnce) await answer(talk, question)
  while (keyboard && !talk.isOver) {
    const line = await keyboard.readPrompt()
    if (line === null || LEAVE.includes(line.trim())) break
    if (line.trim()) await answer(talk, line)
  }
  keyboard?.close()
  process.on('SIGINT', () => process.exit(130)) // who has left need not wait
  await runtime.turns.drain(runtime.settings.shutdownGraceSeconds) // those that tools spawned
  await runtime.close()
  const notice = talk.turns > 0 ? runtime.retentionNotice : 'Nothing was added to it.'
  if (!isOnce) console.log(`\nThis was session ${talk.sessionId}. ${notice}`)
  process.exit(screen.isPiped && talk.failures > 0 ? 1 : 0)
}

function greet(screen: Screen, app: App): void {
  const [{ model }] = app.readSettings()
  const name = `${PROJECT}, ${model === 'offline' ? 'offline model' : model}`
  const line = screen.wrap(`${name}. /help lists the commands; Ctrl-D leaves.`)
  console.log(line.replace(name, () => styleText('bold', name)))
}

/** Run a command, or a turn with this prompt, until Ctrl-C; print why it failed. */
async function answer(talk: Talk, line: string): Promise<void> {
  const { screen, keyboard } = talk
  const name = line.trim()
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name]?.[1] : undefined
  const isUnknown = name !== '/retry' && /^\/\w*(\s|$)/.test(name) // a path has another slash
  const reply = new Reply(screen)
  const controller = new AbortController()
  const { signal } = controller
  if (keyboard) keyboard.turn = controller
  else process.once('SIGINT', () => controller.abort())
  try {
    if (command) {
      const shown = await command(talk, signal)
      reply.stopWaiting()
      screen.print(`${shown.replace(CONTROL, '') || 'None.'}\n`)
    } else if (isUnknown) {
      talk.failures++
      console.log('No such command: /help lists them.')
    } else {
      await takeTurns(talk, line, reply, signal)
    }
  } catch (error) {
    reply.stopWaiting()
    reply.endLine()
    if (signal.aborted) {
      if (screen.isOnce) talk.failures++
      if (!screen.isPiped) console.log('Interrupted: nothing of this turn was kept.')
      talk.isOver = screen.isPiped
    } else {
      talk.failures++
      const failure = asAgentError(error)
      const why = `${failure.message} ${await explain(failure, talk.app.load)}`
      console.log(why.trimEnd())
    }
  } finally {
    reply.stopWaiting()
    if (keyboard) keyboard.turn = undefined
  }
}

/** Run a turn, and those that continue it after an approval. */
async function takeTurns(
  talk: Talk,
  line: string,
  reply: Reply,
  signal: AbortSignal,
): Promise<void> {
  const { runtime, sessionId, actor } = talk
  const isRetry = line.trim() === '/retry'
  const prompt = isRetry ? '' : checkPrompt(line, runtime.settings.maxPromptChars)
  const replaces = isRetry ? 0 : null
  const turns: Turn[] = []
  let next: TurnRequest | undefined = new TurnRequest({ sessionId, actor, prompt, replaces })
  while (next) {
    const turn: Turn = new Turn(next, reply.show)
    turns.push(turn)
    const result = await reply.follow(runtime.start(turn, { signal }))
    next = await runtime.askApproval(result, next, talk.keyboard?.ask ?? refuse)
  }
  talk.turns++
  reply.end(turns)
}

function help({ screen }: Talk): string {
  const lines = Object.entries(COMMANDS).map(([name, [does]]) => `${name.padEnd(10)}${does}`)
  return screen.wrap([...lines, KEYS].join('\n'))
}

function startSession(talk: Talk): string {
  const previous = talk.sessionId
  talk.sessionId = randomUUID()
  talk.turns = 0
  return `Started session ${talk.sessionId} (previous: ${previous}).`
}

async function undo({ runtime, sessionId, actor }: Talk, signal: AbortSignal): Promise<string> {
  const takeBack = (session: Session) => session.takeBack()
  const number = await runtime.sessions.open(sessionId, actor, signal, takeBack)
  return `Turn ${number} was deleted.`
}

async function listMessages({ runtime, sessionId, actor }: Talk): Promise<string> {
  const { data } = await runtime.sessions.read(sessionId, actor)
  const messages = data.messages as Message[]
  const texts = messages.map((message) => [message.role, textOf(message)] as const)
  const lines = texts.filter(([, text]) => text).map((line) => line.join(': '))
  return lines.map((line) => shorten(line, process.stdout.columns || 80)).join('\n')
}

async function describeModel({ runtime }: Talk): Promise<string> {
  const lines = await runtime.describe('')
  return lines.filter((line) => line.includes(runtime.settings.model)).join('\n')
}

async function listTools({ runtime }: Talk): Promise<string> {
  const { describeTools } = await import('../tools.ts')
  const tools = describeTools(runtime.tools())
  const lines = tools.map(([name, text]) => `${name}: ${text.trim().split('\n')[0]}`)
  return lines.join('\n')
}
