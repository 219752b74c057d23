// What a terminal reads and shows: prompts and their history, replies, and the log between them.

import { once } from 'node:events'
import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, isAbsolute, join } from 'node:path'
import { createInterface, emitKeypressEvents, type Interface, type Key } from 'node:readline'
import { styleText } from 'node:util'

import { PROJECT } from '../enabled.ts'
import { AgentError, type Chunk, Data, Source, type Turn } from '../contract.ts'
import { CONTROL, logging, visible } from '../log.ts'
import type { LiveMarkdown } from './markdown.ts'

const MAX_PROMPTS = 1000 // in the history
const SPINNER = '|/-\\'
const PASTE_MARKS_ON = '\x1b[?2004h'
const PASTE_MARKS_OFF = '\x1b[?2004l'
const ERASE_LINE = '\r\x1b[K'

/** The terminal. When piped: no styles, spinner or tool calls. */
export class Screen {
  readonly isOnce: boolean
  readonly isPiped: boolean
  readonly isLive: boolean
  Markdown: typeof LiveMarkdown | undefined // where a terminal shows it
  wrap = (text: string): string => text // with whole words, where a terminal shows it
  #isReplying = false
  readonly #log: string[] = []

  private constructor(isOnce: boolean) {
    this.isOnce = isOnce
    this.isPiped = isOnce || !process.stdin.isTTY
    const isSeen = process.stdout.isTTY && process.env.TERM !== 'dumb'
    this.isLive = isSeen && (isOnce || !this.isPiped)
  }

  /** Return the screen of a conversation, or of one question. */
  static async open(isOnce: boolean): Promise<Screen> {
    const screen = new Screen(isOnce)
    if (isOnce) console.log = console.error // standard output has nothing but the reply
    if (!screen.isLive) return screen
    const { LiveMarkdown, wrap } = await import('./markdown.ts')
    screen.Markdown = LiveMarkdown
    screen.wrap = wrap
    logging.print = (line) => {
      screen.#log.push(line)
      screen.#printLog()
    }
    return screen
  }

  /** The log waits while a reply is printed. */
  set isReplying(isReplying: boolean) {
    this.#isReplying = isReplying
    this.#printLog()
  }

  #printLog(): void {
    while (this.#log.length > 0 && !this.#isReplying) console.error(this.#log.shift())
  }

  readonly print = (text: string): void => {
    process.stdout.write(text)
  }
}

/** The prompts of this user, also those of earlier conversations, for the arrow keys. */
class History {
  lines: string[] = []
  #path = ''

  constructor() {
    try {
      const { XDG_STATE_HOME: state = '' } = process.env
      const home = isAbsolute(state) ? state : join(homedir(), '.local', 'state')
      this.#path = join(home, PROJECT, 'chat_history')
      const text = readFileSync(this.#path, 'utf8').replace(CONTROL, '')
      const lines = text.split('\n').slice(0, -1)
      this.lines = lines.slice(-MAX_PROMPTS)
      if (lines.length > MAX_PROMPTS) writeFileSync(this.#path, `${this.lines.join('\n')}\n`)
    } catch {} // there is no home, or no history yet
  }

  /** Keep a prompt; one of several lines, such as a pasted file, is not written. */
  add(prompt: string): void {
    const line = prompt.replace(CONTROL, '')
    if (!line.trim() || line === this.lines.at(-1) || line.includes('\n')) return
    this.lines.push(line)
    try {
      mkdirSync(dirname(this.#path), { mode: 0o700, recursive: true })
      appendFileSync(this.#path, `${line}\n`, { mode: 0o600 })
    } catch {} // it cannot be written
  }
}

/** The lines that are typed, and Ctrl-C. */
export class Keyboard {
  turn: AbortController | undefined
  readonly #screen: Screen
  readonly #history: History | undefined
  readonly #lines: Interface
  #typed: (string | null)[] = []
  #begun = '' // of a prompt of several lines
  #hasMoreLines = false
  #isClosed = false
  #isAsking = false

  /** Tab completes the `commands`. */
  constructor(screen: Screen, commands: readonly string[]) {
    const { print, isPiped, isLive } = screen
    this.#screen = screen
    if (isLive) this.#history = new History()
    emitKeypressEvents(process.stdin)
    process.stdin.on('keypress', (_, key: Key = {}) => this.#press(key))
    // What is typed while a turn runs is shown later, and not in the middle of the reply.
    const write = { value: (text: string) => this.turn || print(text) }
    this.#lines = createInterface({
      input: process.stdin,
      output: isPiped ? undefined : Object.create(process.stdout, { write }),
      history: this.#history?.lines.toReversed() ?? [],
      historySize: MAX_PROMPTS,
      completer: (line: string) => [this.#complete(line, commands), line],
    })
    this.#lines.on('history', (lines) => {
      // Neither answers to questions nor lines of a longer prompt are prompts.
      if (this.#isAsking || this.#hasMoreLines || this.#begun) lines.shift()
    })
    this.#lines.on('line', (line) => {
      if (this.#hasMoreLines) this.#begun += `${line}\n`
      else this.#add(this.#begun + line)
    })
    this.#lines.on('close', () => {
      this.#isClosed = true
      this.#add(null)
    })
    for (const source of [this.#lines, process]) source.on('SIGINT', () => this.#interrupt())
    if (isLive) print(PASTE_MARKS_ON)
  }

  #press({ name = '', meta }: Key): void {
    if (name === 'paste-start') this.#hasMoreLines = true
    if (name === 'paste-end') this.#hasMoreLines = false
    if (name === 'return' && meta) {
      this.#hasMoreLines = true
      this.#lines.write('', { name: 'return' })
      this.#hasMoreLines = false
      this.#lines.prompt()
    }
  }

  /** Return the commands that begin with a line; elsewhere Tab is a character. */
  #complete(line: string, commands: readonly string[]): string[] {
    const isCommand = line.startsWith('/') && !this.#hasMoreLines
    return isCommand ? commands.filter((command) => command.startsWith(line)) : [`${line}\t`]
  }

  #add(line: string | null): void {
    this.#begun = ''
    this.#typed.push(line)
    this.#lines.emit('typed')
  }

  /** Ask a question during a turn, as `read` does; only its last line is the prompt. */
  readonly ask = async (question: string): Promise<string | null> => {
    const { turn } = this
    this.turn = undefined // so that what is typed is shown
    this.#isAsking = true
    const lastLine = question.lastIndexOf('\n') + 1
    this.#screen.print(question.slice(0, lastLine)) // the editor draws its prompt for each key
    const line = await this.read(question.slice(lastLine))
    this.#isAsking = false
    if (line === null) this.#add(null) // for the conversation, too
    this.turn = turn
    return line
  }

  /** Return the next prompt, and keep it in the history; null is the end. */
  async readPrompt(): Promise<string | null> {
    const sign = this.#screen.isLive ? styleText('bold', '>') : '>'
    const line = await this.read(`${sign} `)
    if (line !== null) this.#history?.add(line)
    return line
  }

  /** Return the next line, or all lines of a longer prompt; null is the end of the conversation. */
  async read(question: string): Promise<string | null> {
    const { isPiped, print } = this.#screen
    this.#lines.setPrompt(question)
    if (isPiped) print(question)
    else if (!this.#isClosed) this.#lines.prompt(true)
    const isUnseen = isPiped || this.#typed.length > 0
    if (this.#typed.length === 0) await once(this.#lines, 'typed')
    const line = this.#typed.shift() ?? null
    if (isUnseen && line !== null) print(`${line.replace(CONTROL, '')}\n`)
    return line
  }

  /** Read no more: Ctrl-C is a signal again. */
  close(): void {
    if (this.#screen.isLive) this.#screen.print(PASTE_MARKS_OFF)
    this.#lines.close()
  }

  #interrupt(): void {
    const isHalfTyped = this.#lines.line || this.#begun
    if (this.turn && !this.turn.signal.aborted) {
      this.#typed = this.#isClosed ? [null] : []
      return this.turn.abort()
    }
    this.#screen.print('\n')
    if (this.turn || !isHalfTyped) return this.#lines.close()
    this.#begun = ''
    Object.assign(this.#lines, { line: '', cursor: 0 })
    this.#lines.prompt()
  }
}

/** Take the place of `ask` where nobody is. */
export async function refuse(question: string): Promise<never> {
  const nobody = 'nobody can answer here: use `chat` without a question'
  throw new AgentError('invalid_request', question.trim(), nobody)
}

/** Prints the output of a turn. */
export class Reply {
  readonly #screen: Screen
  readonly #markdown: LiveMarkdown | undefined
  readonly #calls = new Map<string, string>()
  #seconds = 0
  #isMidLine = false
  #frames = 0
  #spinner: NodeJS.Timeout | undefined

  constructor(screen: Screen) {
    this.#screen = screen
    this.#markdown = screen.Markdown && new screen.Markdown()
    if (screen.isLive) this.#spinner = setInterval(() => this.#spin(), 100)
  }

  /** Draw the next frame; what comes next overwrites it. */
  #spin(): void {
    this.#screen.print(`${SPINNER[this.#frames % SPINNER.length]}\r`)
    this.#frames++
  }

  stopWaiting(): void {
    if (this.#spinner) this.#screen.print(ERASE_LINE)
    clearInterval(this.#spinner)
    this.#spinner = undefined
  }

  /** Print what is held back of the text and the log; what comes next begins a line. */
  endLine(): void {
    this.#markdown?.end()
    if (this.#isMidLine) this.#screen.print('\n')
    this.#isMidLine = false
    this.#screen.isReplying = false
  }

  /** Await a turn, and count its time. */
  async follow<T>(turn: Promise<T>): Promise<T> {
    const start = performance.now()
    try {
      return await turn
    } finally {
      this.stopWaiting()
      if (this.#screen.isLive) this.endLine()
      this.#seconds += (performance.now() - start) / 1000
    }
  }

  /** End the reply; in a conversation with what its turns cost. */
  end(turns: readonly Turn[]): void {
    if (this.#screen.isOnce) return this.endLine()
    const sum = (name: 'inputTokens' | 'cachedTokens' | 'outputTokens') =>
      turns.reduce((total, turn) => total + turn.usage[name], 0).toLocaleString('en-US')
    const [given, cached, written] = [sum('inputTokens'), sum('cachedTokens'), sum('outputTokens')]
    const cache = cached === '0' ? '' : ` (${cached} cached)`
    const tokens = `${given} tokens in${cache}, ${written} out`
    const details = turns.flatMap(({ detail }) => detail || []) // which model answered
    const facts = [`${this.#seconds.toFixed(1)} s`, ...details]
    if (given !== '0' || written !== '0') facts.unshift(tokens)
    const usage = this.#screen.isLive ? styleText('dim', facts.join(', ')) : ''
    this.#screen.print(`${usage}\n`)
  }

  /** Print a chunk of the turn; a call of a tool is one line, when its result is there. */
  readonly show = async (chunk: Chunk): Promise<void> => {
    if (typeof chunk === 'string') return this.#showText(chunk.replace(CONTROL, ''))
    if (!this.#screen.isLive || this.#screen.isOnce) return
    this.endLine()
    if ('input' in chunk) {
      const input = JSON.stringify(chunk.input) ?? ''
      this.#calls.set(chunk.id, `${shorten(visible(chunk.name))} ${shorten(visible(input))}`)
    } else if (chunk instanceof Data) {
      const value = JSON.stringify(chunk.value) ?? ''
      const line = `${shorten(visible(chunk.name))}: ${shorten(visible(value))}`
      this.#screen.print(`${styleText('dim', line)}\n`)
    } else if (chunk instanceof Source) {
      const line = `source: ${shorten(visible(chunk.title))} ${shorten(visible(chunk.url), 200)}`
      this.#screen.print(`${styleText('dim', line)}\n`)
    } else {
      const sign = chunk.isError ? 'failed:' : '->'
      const line = `${this.#calls.get(chunk.id)} ${sign} ${shorten(chunk.text)}`
      this.#screen.print(`${styleText('dim', line)}\n`)
    }
  }

  #showText(text: string): void {
    if (!text) return
    this.stopWaiting()
    if (this.#markdown) {
      this.#screen.isReplying = true
      this.#markdown.add(text)
    } else {
      this.#screen.print(text)
      this.#isMidLine = !text.endsWith('\n')
    }
  }
}

/** Return a text as one line of at most so many characters. */
export function shorten(text: string, most = 60): string {
  const line = [...text.replace(CONTROL, '').trim().replace(/\s+/g, ' ')]
  return line.length <= most ? line.join('') : `${line.slice(0, most - 1).join('')}…`
}
