// A conversation in the terminal, or from a pipe, one prompt per line.

import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createInterface, emitKeypressEvents, type Interface } from 'node:readline'
import { parseArgs } from 'node:util'

import { explain } from './advice.ts'
import { PROJECT } from './capabilities.ts'
import { ACTOR_ID, checkPrompt, type Chunk, ERRORS, SESSION_ID, Turn } from './contract.ts'
import { CommandError } from './findings.ts'
import { asAgentError, CONTROL } from './log.ts'
import type { Session } from './sessions.ts'
import { readSettings } from './settings.ts'

const HELP = `/new      begin a new session
/retry    run the last turn again, and replace it
/undo     delete the last turn
/session  print the id of the session
/quit     leave, as exit, quit and Ctrl-D do
Ctrl-C cancels the running turn, clears a half-typed line, or exits on an empty line.
`
const isPiped = !process.stdin.isTTY
// Pipes get no colours, spinner or tool calls.
const isLive = !isPiped && process.stdout.isTTY && process.env.TERM !== 'dumb'
const print = (text: string): boolean => process.stdout.write(text)

/** Return a text as bold (1) or dim (2) where that can be shown. */
function style(text: string, code: number): string {
  return isLive && !process.env.NO_COLOR ? `\x1b[${code}m${text}\x1b[0m` : text
}

/** Talk to the agent in this terminal, or from a pipe. */
export async function chat(args: string[]): Promise<void> {
  const text = { type: 'string' } as const
  const { values } = parseArgs({ args, options: { session: text, actor: text } })
  let { session: sessionId = randomUUID() as string } = values
  let { actor = null } = values
  if (!SESSION_ID.test(sessionId)) throw new CommandError(ERRORS.invalid_session_id[1], 2)
  if (actor !== null && !ACTOR_ID.test(actor)) throw new CommandError(ERRORS.invalid_actor[1], 2)
  if (isLive) {
    const [{ model }] = readSettings() // at once: a framework takes seconds to load
    const who = `${PROJECT}, ${model === 'offline' ? 'offline model' : model}`
    print(`${style(who, 1)}. /help lists the commands; Ctrl-D leaves.\n`)
  }
  const { startRuntime } = await import('./runtime.ts')
  const [runtime, { takeTurn }] = [await startRuntime(), await import('./turn.ts')]
  if (runtime.actorRequired && actor === null) {
    actor = 'local-user'
    print(`You are ${actor}; choose another with \`-- --actor ID\`.\n`)
  }
  const keyboard = new Keyboard()
  let [done, failed] = [0, 0]
  let line
  while ((line = await keyboard.read()) !== null) {
    const command = line.trim()
    if (['/quit', 'exit', 'quit'].includes(command)) break
    if (command === '/help') {
      print(HELP)
    } else if (command === '/new') {
      const before = sessionId
      ;[sessionId, done] = [randomUUID(), 0]
      print(`Started session ${sessionId} (previous: ${before}).\n`)
    } else if (command === '/session') {
      print(`This is session ${sessionId}.\n`)
    } else if (/^\/(?!(retry|undo)$)\w*(\s|$)/.test(command)) {
      failed++ // a path has another slash
      print('No such command: /help lists them.\n')
    } else if (command) {
      const [reply, { signal }] = [new Reply(), (keyboard.turn = new AbortController())]
      try {
        const turn = new Turn({ sessionId, actor, key: null, prompt: '', emit: reply.show })
        if (command === '/undo') {
          const takeBack = (session: Session) => session.takeBack()
          const number = await runtime.sessions.open(sessionId, actor, signal, takeBack)
          reply.stopWaiting()
          print(`Turn ${number} was deleted.\n`)
          continue
        }
        if (command === '/retry') turn.replaces = 0
        else turn.prompt = checkPrompt(line, runtime.settings.maxPromptChars)
        for (let next: Turn | undefined = turn; next;) {
          const last = await takeTurn(runtime, next, signal)
          reply.stopWaiting()
          next = await runtime.ask(last, next, keyboard.ask)
        }
        done++
        print('\n')
      } catch (error) {
        reply.stopWaiting()
        reply.endLine()
        if (signal.aborted) {
          if (isPiped) break
          print('Interrupted: nothing of this turn was kept.\n')
          continue
        }
        failed++
        const failure = asAgentError(error)
        print(`${failure.message} ${await explain(failure)}`)
      } finally {
        reply.stopWaiting()
        keyboard.turn = undefined
      }
    }
  }
  await runtime.close()
  const notice = done > 0 ? runtime.retentionNotice : 'Nothing was added to it.'
  print(`\nThis was session ${sessionId}. ${notice}\n`)
  if (isLive) print('\x1b[?2004l')
  process.exit(isPiped && failed > 0 ? 1 : 0)
}

/** The lines that are typed, and Ctrl-C. */
class Keyboard {
  turn: AbortController | undefined
  #typed: (string | null)[] = []
  #pasted = ''
  #isPasting = false
  readonly #lines: Interface

  constructor() {
    emitKeypressEvents(process.stdin)
    process.stdin.on('keypress', (_, { name = '' } = {}) => {
      if (name.startsWith('paste-')) this.#isPasting = name === 'paste-start'
    })
    // What is typed while a turn runs is shown later, and not in the middle of the reply.
    const write = { value: (text: string) => this.turn !== undefined || print(text) }
    const output = isPiped ? undefined : Object.create(process.stdout, { write })
    this.#lines = createInterface({ input: process.stdin, output })
    this.#lines.on('line', (line) => {
      this.#pasted += this.#isPasting ? `${line}\n` : line
      if (!this.#isPasting) this.#add(this.#pasted)
    })
    this.#lines.on('close', () => this.#add(null))
    for (const source of [this.#lines, process]) source.on('SIGINT', () => this.#interrupt())
    if (isLive) print('\x1b[?2004h') // the terminal marks what is pasted
  }

  #add(line: string | null): void {
    this.#pasted = ''
    this.#typed.push(line)
    this.#lines.emit('typed')
  }

  /** Ask a question during a turn, as `read` does. */
  readonly ask = async (question: string): Promise<string | null> => {
    const { turn } = this
    this.turn = undefined // so that what is typed is shown
    const line = await this.read(question.replace(CONTROL, ''))
    if (line === null) this.#add(null) // for the conversation, too
    this.turn = turn
    return line
  }

  /** Return the next line, or all lines of a paste; null is the end of the conversation. */
  async read(prompt = `${style('>', 1)} `): Promise<string | null> {
    this.#lines.setPrompt(prompt)
    if (isPiped) print(prompt)
    else this.#lines.prompt(true)
    const isUnseen = isPiped || this.#typed.length > 0
    if (this.#typed.length === 0) await once(this.#lines, 'typed')
    const line = this.#typed.shift() ?? null
    if (isUnseen && line !== null) print(`${line}\n`)
    return line
  }

  #interrupt(): void {
    const isHalfTyped = this.#lines.line || this.#pasted
    if (this.turn && !this.turn.signal.aborted) {
      this.#typed = []
      return this.turn.abort()
    }
    print('\n')
    if (this.turn || !isHalfTyped) return this.#lines.close()
    this.#pasted = ''
    Object.assign(this.#lines, { line: '', cursor: 0 })
    this.#lines.prompt()
  }
}

/** Prints the output of a turn. */
class Reply {
  #atMargin = true
  #frames = 0
  readonly #calls = new Map<string, string>()
  // Until the first text; what comes next overwrites it.
  #spinner = isLive ? setInterval(() => print(`${'|/-\\'[this.#frames++ % 4]}\r`), 100) : undefined

  stopWaiting(): void {
    if (this.#spinner) print('\r\x1b[K')
    clearInterval(this.#spinner)
    this.#spinner = undefined
  }

  endLine(): void {
    if (!this.#atMargin) print('\n')
    this.#atMargin = true
  }

  /** Print a chunk of the turn; a call of a tool is one line, when its result is there. */
  readonly show = async (chunk: Chunk): Promise<void> => {
    if (typeof chunk === 'string') {
      this.stopWaiting()
      const text = chunk.replace(CONTROL, '')
      print(text)
      if (text) this.#atMargin = text.endsWith('\n')
    } else if (isLive) {
      this.endLine()
      if ('input' in chunk) {
        const given = JSON.stringify(chunk.input) ?? ''
        this.#calls.set(chunk.id, `${shorten(chunk.name)} ${shorten(given)}`)
      } else {
        const sign = chunk.isError ? 'failed:' : '->'
        const line = `${this.#calls.get(chunk.id)} ${sign} ${shorten(chunk.text)}`
        print(`${style(line, 2)}\n`)
      }
    }
  }
}

/** Return a text as one line of at most 60 characters. */
function shorten(text: string): string {
  const line = [...text.replace(CONTROL, '').trim().replace(/\s+/g, ' ')]
  return line.length <= 60 ? line.join('') : `${line.slice(0, 59).join('')}…`
}
