// The conversation in a terminal, or line by line from a pipe.

import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createInterface, emitKeypressEvents, type Interface } from 'node:readline'
import { parseArgs } from 'node:util'

import { ACTOR_ID, AgentError, checkPrompt, type Chunk, CONTROL } from './contract.ts'
import { ERRORS, SESSION_ID } from './contract.ts'
import { CommandError, readSettings } from './settings.ts'
import { start } from './start.ts'

const HELP = `/new      begin a new session
/session  print the id of the session
/quit     leave, as exit, quit and Ctrl-D do
Ctrl-C ends a running turn, clears a half typed line, and leaves at an empty one.
`
const isPiped = !process.stdin.isTTY
// Pipes get no colours, spinner or calls of tools.
const isLive = !isPiped && process.stdout.isTTY && process.env.TERM !== 'dumb'
const print = (text: string): boolean => process.stdout.write(text)

/** Return a text as bold (1) or dim (2) where that can be shown. */
function style(text: string, code: number): string {
  return isLive && !process.env.NO_COLOR ? `\x1b[${code}m${text}\x1b[0m` : text
}

/** Talk to the agent here, also line by line from a pipe. */
export async function chat(args: string[]): Promise<void> {
  const text = { type: 'string' } as const
  const { values } = parseArgs({ args, options: { session: text, actor: text } })
  let { session: sessionId = randomUUID() as string } = values
  const { actor = null } = values
  if (!SESSION_ID.test(sessionId)) throw new CommandError(ERRORS.invalid_session_id[1], 2)
  if (actor !== null && !ACTOR_ID.test(actor)) throw new CommandError(ERRORS.invalid_actor[1], 2)
  if (isLive) {
    const [{ model }] = readSettings() // at once: a framework takes seconds to load
    const who = `my-agent, ${model === 'offline' ? 'offline model' : model}`
    print(`${style(who, 1)}. /help lists the commands; Ctrl-D leaves.\n`)
  }
  const [runtime, { takeTurn }] = [await start(), await import('./turn.ts')]
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
      print(`New session ${sessionId}; the one before was ${before}.\n`)
    } else if (command === '/session') {
      print(`This is session ${sessionId}.\n`)
    } else if (/^\/\w*(\s|$)/.test(command)) {
      failed++ // a path has another slash
      print('No such command: /help lists them.\n')
    } else if (command) {
      const [reply, { signal }] = [new Reply(), (keyboard.turn = new AbortController())]
      try {
        const prompt = checkPrompt(line, runtime.settings.maxPromptChars)
        await takeTurn(runtime, { sessionId, actor, key: null, prompt }, reply.show, signal)
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
        if (!(error instanceof AgentError)) throw error
        failed++
        print(`${error.message} ${await explain(error)}`)
      } finally {
        reply.stopWaiting()
        keyboard.turn = undefined
      }
    }
  }
  await runtime.close()
  const notice = done > 0 ? runtime.retentionNotice : 'It had no new turn.'
  print(`\nThis was session ${sessionId}. ${notice}\n`)
  if (isLive) print('\x1b[?2004l')
  process.exit(isPiped && failed > 0 ? 1 : 0)
}

/** Return why a turn failed, for whoever runs this agent, and what to look at. */
async function explain(error: AgentError): Promise<string> {
  const cause = error.cause instanceof Error ? error.cause.message : ''
  const why = (cause || error.detail || error.type).replace(CONTROL, '')
  return `(${why})\n${await advise(error)}`
}

/** Return a line that says what to do when the model fails, or nothing. */
async function advise({ type, detail }: AgentError): Promise<string> {
  if (type !== 'model_failed') return ''
  const { ADDRESS, CREDENTIALS } = await import('./model.ts')
  const hints: [RegExp, string][] = [
    [/HTTP 40[13]|Credential/, `look at ${CREDENTIALS}`],
    [/HTTP 40[04]/, `look at MODEL and ${ADDRESS}`],
    [/HTTP 429|[Tt]hrottl/, "the provider's limit is reached, try again later"],
    [/Connect|ECONN|ENOTFOUND|EAI_AGAIN/, `look at ${ADDRESS} and the network`],
    [/HTTP 5/, 'the provider failed or is overloaded, try again later'],
  ]
  const [, advice] = hints.find(([form]) => form.test(detail)) ?? []
  return advice ? `${detail}: ${advice}.\n` : ''
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
    const prompt = `${style('>', 1)} `
    this.#lines = createInterface({ input: process.stdin, output, prompt })
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

  /** Return the next line, or all lines of a paste; null is the end of the conversation. */
  async read(): Promise<string | null> {
    if (isPiped) print('> ')
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

/** What a turn says, as it is shown. */
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
