// What a terminal reads and shows: prompts and their history, replies, and the log between them.

import { once } from 'node:events'
import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, isAbsolute, join } from 'node:path'
import { createInterface, emitKeypressEvents, type Interface } from 'node:readline'

import { PROJECT } from './capabilities.ts'
import { AgentError, type Chunk, type Turn } from './contract.ts'
import { CONTROL, logging, visible } from './log.ts'
import { BOLD, DIM, Markdown } from './markdown.ts'

const MOST_PROMPTS = 1000 // in the history

/** The terminal. When piped: no styles, spinner or tool calls. */
export class Screen {
  readonly isOnce: boolean
  readonly isPiped: boolean
  readonly isLive: boolean
  readonly isPlain: boolean
  #isReplying = false
  readonly #log: string[] = []

  constructor(isOnce: boolean) {
    this.isOnce = isOnce
    this.isPiped = isOnce || !process.stdin.isTTY
    if (isOnce) console.log = console.error // standard output has nothing but the reply
    const isSeen = process.stdout.isTTY && process.env.TERM !== 'dumb'
    this.isLive = isSeen && (isOnce || !this.isPiped)
    this.isPlain = !this.isLive || !!process.env.NO_COLOR
    if (!this.isLive) return
    logging.print = (line) => {
      this.#log.push(line)
      this.printLog()
    }
  }

  get columns(): number {
    return Math.max(process.stdout.columns || 80, 10)
  }

  /** Print the lines of the log that were kept. */
  printLog(): void {
    while (this.#log.length > 0 && !this.#isReplying) console.error(this.#log.shift())
  }

  /** Print a text as it is; behind a text of a reply the log is kept. */
  readonly print = (text: string, isReply = false): void => {
    this.#isReplying = isReply && this.isLive
    process.stdout.write(text)
  }

  /** Return a text with its words wrapped whole, where a terminal shows it. */
  wrap(text: string): string {
    if (!this.isLive) return text
    const markdown = new Markdown(() => this.columns)
    return markdown.feed(text) + markdown.end()
  }

  /** Return a text in a style, where that can be shown. */
  readonly style = (text: string, code: string): string =>
    this.isPlain || !code ? text : `\x1b[${code}m${text}\x1b[0m`
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
      this.lines = lines.slice(-MOST_PROMPTS)
      if (lines.length > MOST_PROMPTS) writeFileSync(this.#path, `${this.lines.join('\n')}\n`)
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
  #pasted = ''
  #isPasting = false
  #isClosed = false
  #isAsking = false

  constructor(screen: Screen) {
    const { print, isPiped, isLive } = screen
    this.#screen = screen
    if (isLive) this.#history = new History()
    emitKeypressEvents(process.stdin)
    process.stdin.on('keypress', (_, { name = '' } = {}) => {
      if (name.startsWith('paste-')) this.#isPasting = name === 'paste-start'
    })
    // What is typed while a turn runs is shown later, and not in the middle of the reply.
    const write = { value: (text: string) => this.turn || print(text) }
    const output = isPiped ? undefined : Object.create(process.stdout, { write })
    const history = this.#history?.lines.toReversed() ?? []
    const past = { history, historySize: MOST_PROMPTS }
    this.#lines = createInterface({ input: process.stdin, output, ...past })
    this.#lines.on('history', (lines) => {
      // Neither answers to questions nor the lines of a paste are prompts.
      if (this.#isAsking || this.#isPasting || this.#pasted) lines.shift()
    })
    this.#lines.on('line', (line) => {
      this.#pasted += this.#isPasting ? `${line}\n` : line
      if (!this.#isPasting) this.#add(this.#pasted)
    })
    this.#lines.on('close', () => {
      this.#isClosed = true
      this.#add(null)
    })
    for (const source of [this.#lines, process]) source.on('SIGINT', () => this.#interrupt())
    if (isLive) print('\x1b[?2004h') // the terminal marks what is pasted
  }

  #add(line: string | null): void {
    this.#pasted = ''
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
    const line = await this.read(`${this.#screen.style('>', BOLD)} `)
    if (line !== null) this.#history?.add(line)
    return line
  }

  /** Return the next line, or all lines of a paste; null is the end of the conversation. */
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
    this.#lines.close()
  }

  #interrupt(): void {
    const isHalfTyped = this.#lines.line || this.#pasted
    if (this.turn && !this.turn.signal.aborted) {
      this.#typed = this.#isClosed ? [null] : []
      return this.turn.abort()
    }
    this.#screen.print('\n')
    if (this.turn || !isHalfTyped) return this.#lines.close()
    this.#pasted = ''
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
  readonly #calls = new Map<string, string>()
  #markdown: Markdown | undefined
  #seconds = 0
  #atMargin = true
  #frames = 0
  #spinner: NodeJS.Timeout | undefined

  constructor(screen: Screen) {
    this.#screen = screen
    this.#begin()
    // Until the first text; what comes next overwrites it.
    const spin = () => screen.print(`${'|/-\\'[this.#frames++ % 4]}\r`)
    if (screen.isLive) this.#spinner = setInterval(spin, 100)
  }

  #begin(): void {
    const { isLive, isPlain, style } = this.#screen
    const columns = () => this.#screen.columns
    this.#markdown = isLive ? new Markdown(columns, isPlain ? undefined : style) : undefined
  }

  stopWaiting(): void {
    if (this.#spinner) this.#screen.print('\r\x1b[K')
    clearInterval(this.#spinner)
    this.#spinner = undefined
  }

  /** Print what is held back of the text and the log; what comes next begins a line. */
  endLine(): void {
    this.#print(this.#markdown?.end() ?? '')
    this.#screen.print(this.#atMargin ? '' : '\n')
    this.#atMargin = true
    this.#screen.printLog()
    this.#begin()
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
      turns.reduce((total, turn) => total + turn[name], 0).toLocaleString('en-US')
    const [given, cached, written] = [sum('inputTokens'), sum('cachedTokens'), sum('outputTokens')]
    const cache = cached === '0' ? '' : ` (${cached} cached)`
    const tokens = `${given} tokens in${cache}, ${written} out`
    const details = turns.flatMap(({ detail }) => detail || []) // which model answered
    const facts = [`${this.#seconds.toFixed(1)} s`, ...details]
    if (given !== '0' || written !== '0') facts.unshift(tokens)
    const usage = this.#screen.isLive ? this.#screen.style(facts.join(', '), DIM) : ''
    this.#screen.print(`${usage}\n`)
  }

  /** Print a chunk of the turn; a call of a tool is one line, when its result is there. */
  readonly show = async (chunk: Chunk): Promise<void> => {
    if (typeof chunk === 'string') {
      const text = chunk.replace(CONTROL, '')
      this.#print(this.#markdown ? this.#markdown.feed(text) : text)
    } else if (this.#screen.isLive && !this.#screen.isOnce) {
      this.endLine()
      if ('input' in chunk) {
        const given = JSON.stringify(chunk.input) ?? ''
        this.#calls.set(chunk.id, `${shorten(visible(chunk.name))} ${shorten(visible(given))}`)
      } else {
        const sign = chunk.isError ? 'failed:' : '->'
        const line = `${this.#calls.get(chunk.id)} ${sign} ${shorten(chunk.text)}`
        this.#screen.print(`${this.#screen.style(line, DIM)}\n`)
      }
    }
  }

  #print(text: string): void {
    if (!text) return
    this.stopWaiting()
    this.#screen.print(text, true)
    this.#atMargin = text.endsWith('\n')
  }
}

/** Return a text as one line of at most so many characters. */
export function shorten(text: string, most = 60): string {
  const line = [...text.replace(CONTROL, '').trim().replace(/\s+/g, ' ')]
  return line.length <= most ? line.join('') : `${line.slice(0, most - 1).join('')}…`
}
