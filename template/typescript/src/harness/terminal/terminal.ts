// Input and output of `chat`: prompts with a history, replies, and the log between them.

import { once } from 'node:events'
import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, isAbsolute, join } from 'node:path'
import { createInterface, emitKeypressEvents, type Interface, type Key } from 'node:readline'
import { styleText } from 'node:util'

import { PROJECT } from '../enabled.ts'
import { AgentError, type Chunk, Data, Reasoning, Source, type Turn } from '../contract.ts'
import { CONTROL, escapeInvisible, logging } from '../log.ts'
import type { LiveMarkdown } from './markdown.ts'

const MAX_PROMPTS = 1000 // in the history
const SPINNER = '|/-\\'
const PASTE_MARKS_ON = '\x1b[?2004h'
const PASTE_MARKS_OFF = '\x1b[?2004l'
const ERASE_LINE = '\r\x1b[K'

/** The terminal or pipe; a pipe shows no styles, spinner or tool calls. */
export class Screen {
  readonly isSingleQuestion: boolean
  readonly isPiped: boolean
  readonly isLive: boolean
  Markdown: typeof LiveMarkdown | undefined // set in a terminal
  wrap = (text: string): string => text // wraps words in a terminal
  #isReplying = false
  readonly #log: string[] = []

  private constructor(isSingleQuestion: boolean) {
    this.isSingleQuestion = isSingleQuestion
    this.isPiped = isSingleQuestion || !process.stdin.isTTY
    const isTerminal = process.stdout.isTTY && process.env.TERM !== 'dumb'
    this.isLive = isTerminal && (isSingleQuestion || !this.isPiped)
  }

  /** Return the screen of a conversation or a single question. */
  static async open(isSingleQuestion: boolean): Promise<Screen> {
    const screen = new Screen(isSingleQuestion)
    if (isSingleQuestion) console.log = console.error // standard output carries only the reply
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

  /** Whether a reply is being printed; log lines wait until the reply ends. */
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

/** The user's prompts from this conversation and earlier conversations. */
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
    } catch {} // no home or no history
  }

  /** Save a prompt, unless it has several lines, as pasted files do. */
  add(prompt: string): void {
    const line = prompt.replace(CONTROL, '')
    if (!line.trim() || line === this.lines.at(-1) || line.includes('\n')) return
    this.lines.push(line)
    try {
      mkdirSync(dirname(this.#path), { mode: 0o700, recursive: true })
      appendFileSync(this.#path, `${line}\n`, { mode: 0o600 })
    } catch {} // such as a full disk
  }
}

/** The keyboard: typed lines and Ctrl-C. */
export class Keyboard {
  /** Cancels the running turn. */
  turnAbort: AbortController | undefined
  readonly #screen: Screen
  readonly #history: History | undefined
  readonly #lines: Interface
  #queue: (string | null)[] = []
  #draft = '' // earlier lines of the prompt
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
    // Echo input that is typed during a turn only after the reply, so that they do not mix.
    const write = { value: (text: string) => this.turnAbort || print(text) }
    this.#lines = createInterface({
      input: process.stdin,
      output: isPiped ? undefined : Object.create(process.stdout, { write }),
      history: this.#history?.lines.toReversed() ?? [],
      historySize: MAX_PROMPTS,
      completer: (line: string) => [this.#complete(line, commands), line],
    })
    this.#lines.on('history', (lines) => {
      // The history excludes answers to questions and single lines of multi-line prompts.
      if (this.#isAsking || this.#hasMoreLines || this.#draft) lines.shift()
    })
    this.#lines.on('line', (line) => {
      if (this.#hasMoreLines) this.#draft += `${line}\n`
      else this.#add(this.#draft + line)
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

  /** Return the commands that start with `line`; elsewhere Tab inserts a tab. */
  #complete(line: string, commands: readonly string[]): string[] {
    const isCommand = line.startsWith('/') && !this.#hasMoreLines
    return isCommand ? commands.filter((command) => command.startsWith(line)) : [`${line}\t`]
  }

  #add(line: string | null): void {
    this.#draft = ''
    this.#queue.push(line)
    this.#lines.emit('typed')
  }

  /** Ask a question during a turn; its last line is the prompt. */
  readonly ask = async (question: string): Promise<string | null> => {
    const { turnAbort } = this
    this.turnAbort = undefined // shows typed characters
    this.#isAsking = true
    const lastLine = question.lastIndexOf('\n') + 1
    this.#screen.print(question.slice(0, lastLine)) // the editor redraws only its line
    const line = await this.read(question.slice(lastLine))
    this.#isAsking = false
    if (line === null) this.#add(null) // also ends the conversation
    this.turnAbort = turnAbort
    return line
  }

  /** Return the next prompt and add it to the history; null means the end. */
  async readPrompt(): Promise<string | null> {
    const sign = this.#screen.isLive ? styleText('bold', '>') : '>'
    const line = await this.read(`${sign} `)
    if (line !== null) this.#history?.add(line)
    return line
  }

  /** Return a line or a paste; null means the end of the conversation. */
  async read(question: string): Promise<string | null> {
    const { isPiped, print } = this.#screen
    this.#lines.setPrompt(question)
    if (isPiped) print(question)
    else if (!this.#isClosed) this.#lines.prompt(true)
    const isUnseen = isPiped || this.#queue.length > 0
    if (this.#queue.length === 0) await once(this.#lines, 'typed')
    const line = this.#queue.shift() ?? null
    if (isUnseen && line !== null) print(`${line.replace(CONTROL, '')}\n`)
    return line
  }

  /** Stop reading, so that Ctrl-C sends a signal again. */
  close(): void {
    if (this.#screen.isLive) this.#screen.print(PASTE_MARKS_OFF)
    this.#lines.close()
  }

  #interrupt(): void {
    const isHalfTyped = this.#lines.line || this.#draft
    if (this.turnAbort && !this.turnAbort.signal.aborted) {
      this.#queue = this.#isClosed ? [null] : []
      return this.turnAbort.abort()
    }
    this.#screen.print('\n')
    if (this.turnAbort || !isHalfTyped) return this.#lines.close()
    this.#draft = ''
    Object.assign(this.#lines, { line: '', cursor: 0 })
    this.#lines.prompt()
  }
}

/** Reject a question, because no user can answer it. */
export async function refuseQuestion(question: string): Promise<never> {
  const detail = 'no user can answer this question: run `chat` without a prompt argument'
  throw new AgentError('invalid_request', question.trim(), detail)
}

/** Prints the output of a turn. */
export class Reply {
  readonly #screen: Screen
  readonly #markdown: LiveMarkdown | undefined
  readonly #reasoning: LiveMarkdown | undefined
  /** The part that is being printed. */
  #part: LiveMarkdown | undefined
  readonly #calls = new Map<string, string>()
  #seconds = 0
  #isMidLine = false
  #frames = 0
  #spinner: NodeJS.Timeout | undefined

  constructor(screen: Screen) {
    this.#screen = screen
    this.#markdown = screen.Markdown && new screen.Markdown(false)
    this.#reasoning = screen.Markdown && new screen.Markdown(true)
    if (screen.isLive) this.#spinner = setInterval(() => this.#spin(), 100)
  }

  /** Draw the next frame, which later text overwrites. */
  #spin(): void {
    this.#screen.print(`${SPINNER[this.#frames % SPINNER.length]}\r`)
    this.#frames++
  }

  stopWaiting(): void {
    if (this.#spinner) this.#screen.print(ERASE_LINE)
    clearInterval(this.#spinner)
    this.#spinner = undefined
  }

  /** Print the remaining text, end the line, and print the pending log lines. */
  endLine(): void {
    this.#part?.end()
    this.#part = undefined
    if (this.#isMidLine) this.#screen.print('\n')
    this.#isMidLine = false
    this.#screen.isReplying = false
  }

  /** Await a turn and add its time to the reply's time. */
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

  /**
   * End the reply; in a conversation, print the tokens and the time of its turns, and the models
   * that replaced `model`.
   */
  end(turns: readonly Turn[], model: string): void {
    if (this.#screen.isSingleQuestion) return this.endLine()
    const sum = (name: 'inputTokens' | 'cachedTokens' | 'outputTokens') =>
      turns.reduce((total, turn) => total + turn.usage[name], 0).toLocaleString('en-US')
    const input = sum('inputTokens')
    const cached = sum('cachedTokens')
    const output = sum('outputTokens')
    const cache = cached === '0' ? '' : ` (${cached} cached)`
    const tokens = `${input} tokens in${cache}, ${output} out`
    const others = new Set(turns.map((turn) => turn.model).filter((name) => name && name !== model))
    const names = [...others].map((name) => `answered by ${name}`)
    const facts = [`${this.#seconds.toFixed(1)} s`, ...names]
    if (input !== '0' || output !== '0') facts.unshift(tokens)
    const usage = this.#screen.isLive ? styleText('dim', facts.join(', ')) : ''
    this.#screen.print(`${usage}\n`)
  }

  /** Print a chunk of the turn; a tool call becomes a line with its result. */
  readonly show = async (chunk: Chunk): Promise<void> => {
    if (typeof chunk === 'string') return this.#showText(chunk, this.#markdown)
    if (!this.#screen.isLive || this.#screen.isSingleQuestion) return
    if (chunk instanceof Reasoning) return this.#showText(chunk.text, this.#reasoning)
    this.endLine()
    if ('input' in chunk) {
      const input = JSON.stringify(chunk.input) ?? ''
      this.#calls.set(chunk.id, `${formatField(chunk.name)} ${formatField(input)}`)
    } else if (chunk instanceof Data) {
      const value = JSON.stringify(chunk.value) ?? ''
      const line = `${formatField(chunk.name)}: ${formatField(value)}`
      this.#screen.print(`${styleText('dim', line)}\n`)
    } else if (chunk instanceof Source) {
      const line = `source: ${formatField(chunk.title)} ${formatField(chunk.url, 200)}`
      this.#screen.print(`${styleText('dim', line)}\n`)
    } else {
      const sign = chunk.isError ? 'failed:' : '->'
      const line = `${this.#calls.get(chunk.id)} ${sign} ${shorten(chunk.text)}`
      this.#screen.print(`${styleText('dim', line)}\n`)
    }
  }

  /** Print text in a part; a blank line separates the reasoning from the reply. */
  #showText(chunk: string, part: LiveMarkdown | undefined): void {
    const text = chunk.replace(CONTROL, '')
    if (!text) return
    this.stopWaiting()
    if (!part) {
      this.#screen.print(text)
      this.#isMidLine = !text.endsWith('\n')
      return
    }
    if (this.#part && this.#part !== part) {
      this.endLine()
      this.#screen.print('\n')
    }
    this.#part = part
    this.#screen.isReplying = true
    part.add(text)
  }
}

/** Shorten text to one line of at most `maxChars` characters, and escape invisible characters. */
function formatField(text: string, maxChars?: number): string {
  return shorten(escapeInvisible(text), maxChars)
}

/** Shorten text to one line of at most `maxChars` characters. */
export function shorten(text: string, maxChars = 60): string {
  const line = [...text.replace(CONTROL, '').trim().replace(/\s+/g, ' ')]
  return line.length <= maxChars ? line.join('') : `${line.slice(0, maxChars - 1).join('')}…`
}
