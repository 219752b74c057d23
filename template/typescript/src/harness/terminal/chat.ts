// The command `chat`: a conversation in a terminal or a pipe.

import { randomUUID } from 'node:crypto'
import { homedir } from 'node:os'
import { parseArgs, styleText } from 'node:util'

import { explain } from '../models/advice.ts'
import { PROJECT } from '../enabled.ts'
import { ACTOR_ID, checkPrompt, ERRORS, SESSION_ID } from '../contract.ts'
import { AgentError, type File, Turn, TurnRequest } from '../contract.ts'
import type { App } from '../capability.ts'
import { checkFiles, readPath } from '../files.ts'
import { CommandError } from '../findings.ts'
import { asAgentError, CONTROL, logging, surviveLateErrors } from '../log.ts'
import type { Runtime } from '../runtime.ts'
import { type Message, type Session, textOf } from '../sessions/sessions.ts'
import { Keyboard, refuseQuestion, Reply, Screen, shorten } from './terminal.ts'

interface Conversation {
  app: App
  runtime: Runtime
  screen: Screen
  keyboard: Keyboard | undefined
  sessionId: string
  actor: string | null
  files: File[] // for the next prompt
  turns: number // completed turns of this session
  failures: number
  isOver: boolean
}
type Work = (reply: Reply, signal: AbortSignal) => Promise<void>
type Command = (conversation: Conversation, signal: AbortSignal) => string | Promise<string>

const COMMANDS: Record<string, [does: string, run?: Command]> = {
  '/new': ['begin a new session', startSession],
  '/attach': ['attach a file to the next prompt; without a path, remove all files', detach],
  '/retry': ['rerun and replace the last turn'],
  '/undo': ['delete the last turn', undo],
  '/history': ['list the messages of the session', listMessages],
  '/model': ['print the model', describeModel],
  '/tools': ['list the tools of the agent', listTools],
  '/session': ['print the session id', ({ sessionId }) => `This is session ${sessionId}.`],
  '/help': ['list the commands', help],
  '/quit': ['leave (also exit, quit and Ctrl-D)'],
}
const LEAVE = ['/quit', 'exit', 'quit']
const KEYS = `In a terminal, Tab completes a command and Alt-Enter inserts a line break.
Ctrl-C cancels the running turn, clears the line, or leaves if the line is empty.`

/** Chat with the agent in a terminal or a pipe; with a question, print only the reply. */
export async function chat(args: string[], app: App): Promise<void> {
  const text = { type: 'string' } as const
  const options = { session: text, actor: text, file: { ...text, multiple: true } } as const
  const { values, positionals } = parseArgs({ args, options, allowPositionals: true })
  const { session: sessionId = randomUUID() as string, actor = null } = values
  const [question, ...extra] = positionals
  if (extra.length > 0) throw new CommandError('Put the question in quotes.', 2)
  if (!SESSION_ID.test(sessionId)) throw new CommandError(ERRORS.invalid_session_id[1], 2)
  if (actor !== null && !ACTOR_ID.test(actor)) throw new CommandError(ERRORS.invalid_actor[1], 2)

  const isSingleQuestion = question !== undefined
  const screen = await Screen.open(isSingleQuestion)
  if (screen.isLive && !isSingleQuestion) greet(screen, app) // before the framework loads
  const { startRuntime } = await import('../runtime.ts')
  const runtime = await startRuntime(app)
  await import('../turn.ts') // loads the framework before the first prompt
  surviveLateErrors()
  logging.hasTurns = false
  const keyboard = isSingleQuestion ? undefined : new Keyboard(screen, Object.keys(COMMANDS))
  const start = { files: [], turns: 0, failures: 0, isOver: false }
  const conversation: Conversation = { app, runtime, screen, keyboard, sessionId, actor, ...start }
  if (runtime.actorRequired && actor === null) {
    conversation.actor = 'local-user'
    console.log(`You are ${conversation.actor}. Use \`-- --actor ID\` for another actor.`)
  }
  for (const path of values.file ?? []) {
    await attach(conversation, path).catch((error) => {
      throw error instanceof AgentError ? new CommandError(error.message) : error
    })
  }
  if (isSingleQuestion) await handle(conversation, question)
  else if (values.session !== undefined) await followTurn(conversation)
  while (keyboard && !conversation.isOver) {
    const line = await keyboard.readPrompt()
    if (line === null || LEAVE.includes(line.trim())) break
    if (line.trim()) await handle(conversation, line)
  }
  keyboard?.close()
  process.on('SIGINT', () => process.exit(130)) // Ctrl-C ends the drain
  await runtime.turns.drain(runtime.settings.shutdownGraceSeconds) // turns of tools
  await runtime.close()
  const notice = conversation.turns > 0 ? runtime.retentionNotice : 'Nothing was added to it.'
  if (!isSingleQuestion) console.log(`\nThis was session ${conversation.sessionId}. ${notice}`)
  process.exit(screen.isPiped && conversation.failures > 0 ? 1 : 0)
}

function greet(screen: Screen, app: App): void {
  const [{ model }] = app.readSettings()
  const name = `${PROJECT}, ${model === 'offline' ? 'offline model' : model}`
  const line = screen.wrap(`${name}. /help lists the commands; Ctrl-D leaves.`)
  console.log(line.replace(name, () => styleText('bold', name)))
}

/** Run a command, or a turn with this prompt; print errors. */
async function handle(conversation: Conversation, line: string): Promise<void> {
  const name = line.trim()
  // Terminals quote the path of a file that is dropped on them.
  const path = /^\/attach\s+(.+)$/.exec(name)?.[1]?.replace(/^(['"])(.*)\1$/, '$2')
  const attachFile: Command = () => attach(conversation, path ?? '')
  const named = Object.hasOwn(COMMANDS, name) ? COMMANDS[name]?.[1] : undefined
  const command = path ? attachFile : named
  const isUnknown = name !== '/retry' && /^\/\w*(\s|$)/.test(name) // not a path
  await attempt(conversation, 'Interrupted: this turn was not saved.', async (reply, signal) => {
    if (command) {
      const output = await command(conversation, signal)
      reply.stopWaiting()
      conversation.screen.print(`${output.replace(CONTROL, '') || 'None.'}\n`)
    } else if (isUnknown) {
      conversation.failures++
      console.log('Unknown command. Type /help for a list.')
    } else {
      await runTurns(conversation, line, reply, signal)
    }
  })
}

/** Show the session's running turn, until it ends or the user presses Ctrl-C. */
async function followTurn(conversation: Conversation): Promise<void> {
  const { runtime, screen, sessionId, actor } = conversation
  await attempt(conversation, 'The turn continues.', async (reply, signal) => {
    const chunks = await runtime.follow(sessionId, actor, signal)
    if (!chunks) return
    console.log('A turn of this session is running. To leave it running, press Ctrl-C.')
    const show = async () => {
      for await (const chunk of chunks) await reply.show(chunk)
      signal.throwIfAborted()
    }
    await reply.follow(show())
    conversation.turns++
    reply.endLine()
    screen.print('\n')
  })
}

/** Do some work; print errors, or `interrupted` after Ctrl-C. */
async function attempt(conversation: Conversation, interrupted: string, work: Work): Promise<void> {
  const { screen, keyboard } = conversation
  const reply = new Reply(screen)
  const controller = new AbortController()
  const { signal } = controller
  if (keyboard) keyboard.turnAbort = controller
  else process.once('SIGINT', () => controller.abort())
  try {
    await work(reply, signal)
  } catch (error) {
    reply.stopWaiting()
    reply.endLine()
    if (signal.aborted) {
      if (screen.isSingleQuestion) conversation.failures++
      if (!screen.isPiped) console.log(interrupted)
      conversation.isOver = screen.isPiped
    } else {
      conversation.failures++
      const failure = asAgentError(error)
      const message = `${failure.message} ${await explain(failure, conversation.app.load)}`
      console.log(message.trimEnd())
    }
  } finally {
    reply.stopWaiting()
    if (keyboard) keyboard.turnAbort = undefined
  }
}

/** Run a turn and its continuations after approvals. */
async function runTurns(
  conversation: Conversation,
  line: string,
  reply: Reply,
  signal: AbortSignal,
): Promise<void> {
  const { runtime, sessionId, actor } = conversation
  const isRetry = line.trim() === '/retry'
  const prompt = isRetry ? '' : checkPrompt(line, runtime.settings.maxPromptChars)
  const replaces = isRetry ? 0 : null
  const turns: Turn[] = []
  const files = isRetry ? [] : [...conversation.files]
  const fields = { sessionId, actor, prompt, replaces, files }
  let next: TurnRequest | undefined = new TurnRequest(fields)
  while (next) {
    const turn: Turn = new Turn(next, reply.show)
    turns.push(turn)
    const result = await reply.follow(runtime.start(turn, { signal }))
    next = await runtime.askApproval(result, next, conversation.keyboard?.ask ?? refuseQuestion)
  }
  if (!isRetry) conversation.files = []
  conversation.turns++
  reply.end(turns, runtime.settings.model)
}

/** Attach a file to the next prompt. */
async function attach(conversation: Conversation, path: string): Promise<string> {
  const { files, runtime } = conversation
  const expanded = path.replace(/^~(?=$|\/)/, homedir())
  const file = await readPath(expanded, runtime.settings)
  checkFiles([...files, file], runtime.fileTypes, runtime.settings)
  files.push(file)
  const size = file.data.length.toLocaleString('en')
  return `Attached ${file.label} (${size} bytes) to the next prompt.`
}

function detach(conversation: Conversation): string {
  conversation.files = []
  return 'No files are attached to the next prompt.'
}

function help({ screen }: Conversation): string {
  const lines = Object.entries(COMMANDS).map(([name, [does]]) => `${name.padEnd(10)}${does}`)
  return screen.wrap([...lines, KEYS].join('\n'))
}

function startSession(conversation: Conversation): string {
  const previous = conversation.sessionId
  conversation.sessionId = randomUUID()
  conversation.turns = 0
  conversation.files = []
  return `Started session ${conversation.sessionId} (previous: ${previous}).`
}

async function undo(conversation: Conversation, signal: AbortSignal): Promise<string> {
  const { runtime, sessionId, actor } = conversation
  const deleteLastTurn = (session: Session) => session.takeBack()
  const number = await runtime.sessions.open(sessionId, actor, signal, deleteLastTurn)
  return `Deleted turn ${number}.`
}

async function listMessages({ runtime, sessionId, actor }: Conversation): Promise<string> {
  const { data } = await runtime.sessions.read(sessionId, actor)
  const messages = data.messages as Message[]
  const texts = messages.map((message) => [message.role, textOf(message)] as const)
  const lines = texts.filter(([, text]) => text).map((line) => line.join(': '))
  return lines.map((line) => shorten(line, process.stdout.columns || 80)).join('\n')
}

async function describeModel({ runtime }: Conversation): Promise<string> {
  const lines = await runtime.describe('')
  return lines.filter((line) => line.includes(runtime.settings.model)).join('\n')
}

async function listTools({ runtime }: Conversation): Promise<string> {
  const { describeTools } = await import('../tools.ts')
  const tools = describeTools(runtime.tools())
  const lines = tools.map(([name, text]) => `${name}: ${text.trim().split('\n')[0]}`)
  return lines.join('\n')
}
