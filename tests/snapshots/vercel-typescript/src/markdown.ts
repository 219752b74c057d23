// Markdown as it streams: bold, code, headings and lists, in words that are wrapped whole.

export const BOLD = '1'
export const DIM = '2'
const CODE = '36'
const BOLD_CODE = '1;36'
const LONGEST = 400 // characters that are held back until it is clear what they are
const PREFIX = /^[ \t]*(?:(?:#{1,6}|[-*+]|[0-9]{1,9}[.)])[ \t]+(?=\S))?/
const FENCE = /^[ \t]*(`{3,}|~{3,})([^`\n]*)\n$/
const UNCLEAR = /^(?:[-#*+`~0-9.) \t]*|[ \t]*(?:`{3,}|~{3,})[^`\n]*)$/ // may become one of both
// Neither `x**2 + y**2` nor `**some, **others`.
const IS_BOLD =
  /(?<![a-zA-Z0-9)])(\*\*\*?)(?=[^\s*])((?:(?!\*\*)[^\n])+)(?<!\s)\1(?=[^*a-zA-Z0-9])/y
const IS_CODE = /(`+)(?!`) ?([^\n]*?[^`]) ?\1(?=[^`])/y
const UNCLEAR_SPAN = /^(?:\*{1,3}|\*{2,3}[^\s*](?:(?!\*\*)[^\n])*\*{0,3}|`+[^\n]*)$/
const NEVER_FIRST = ',.;:!?)]}、。，．：；！？）」』' // in a line, behind a wide character
const ZERO = /^[\p{Mn}\p{Me}\p{Cf}\u{1f3fb}-\u{1f3ff}]$/u
const SCRIPTS =
  '\u1100-\u115f\u2e80-\u303e\u3041-\u3247\u3250-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff' +
  '\ufe10-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{16fe0}-\u{1b2ff}\u{1f200}-\u{1f265}\u{20000}-\u{3fffd}'
const WIDE = new RegExp(`^(?:[${SCRIPTS}]|(?![\u{1f1e6}-\u{1f1ff}])\\p{Emoji_Presentation})$`, 'u')

type Style = (text: string, code: string) => string

/** Return how many columns a character takes; accents and skin tones belong to another one. */
function width(char: string): number {
  return ZERO.test(char) ? 0 : WIDE.test(char) ? 2 : 1
}

/**
 * Styles Markdown and wraps its words, whatever chunks the text comes in.
 *
 * A word is shown when it is whole, and so is what is bold or code. Without `style` the words
 * are wrapped, and all marks stay.
 */
export class Markdown {
  #out = ''
  #half = '' // of a surrogate pair
  #start: string | null = '' // of a line, until it is clear what the line is
  #fence = '' // of the code block
  #code = '' // the style of the line
  #before = '' // the character in front of `held`
  #held = '' // what may become a span
  #space = ''
  #word: [char: string, code: string][] = []
  #columns = 0
  #column = 0
  #indent = 0
  readonly #measure: () => number
  readonly #style: Style | undefined

  constructor(columns: () => number, style?: Style) {
    this.#measure = columns
    this.#style = style
  }

  /** Return what can be shown after this text. */
  feed(text: string): string {
    this.#out = ''
    const [whole = '', half = ''] = (this.#half + text).split(/([\ud800-\udbff])$/)
    this.#half = half
    for (const char of whole) {
      if (this.#start === null) this.#read(char)
      else this.#begin(this.#start + char)
    }
    return this.#out
  }

  /** Return what was held back. */
  end(): string {
    return this.feed('\n').slice(0, -1)
  }

  /** Read the start of a line, until it is clear what the line is. */
  #begin(line: string): void {
    this.#start = line
    if (line.length <= LONGEST && UNCLEAR.test(line)) return
    const [, fence = '', info = ''] = FENCE.exec(line) ?? []
    const opened = this.#fence
    this.#fence ||= fence
    const [found = ''] = this.#fence ? [] : PREFIX.exec(line)!
    const isHeading = this.#style && found.includes('#')
    let prefix = isHeading ? '' : found.replaceAll('\t', '    ')
    if (this.#style) prefix = prefix.replace(/[-*+]/, '•')
    this.#start = null
    this.#code = this.#fence ? DIM : isHeading ? BOLD : ''
    this.#columns = this.#fence ? Infinity : this.#measure() // code is not wrapped
    this.#column = prefix.length
    this.#indent = Math.min(prefix.length, Math.floor(this.#columns / 2))
    this.#out += prefix
    for (const char of line.slice(found.length)) this.#read(char)
    if (opened && fence.startsWith(opened) && !info.trim()) this.#fence = ''
  }

  /** Read a character of a line; what may become bold or code is held until it does. */
  #read(char: string): void {
    if (this.#fence || !this.#style) return this.#add(char, this.#code)
    this.#held += char
    while (this.#held) {
      const held = this.#held
      const form = held.startsWith('*') ? IS_BOLD : IS_CODE
      form.lastIndex = this.#before.length
      const span = form.exec(this.#before + held)
      if (!span && held.length <= LONGEST && UNCLEAR_SPAN.test(held)) return
      const [found, , text = ''] = span ?? /^(?:\*+|`+|[^])/u.exec(held)!
      if (!span) this.#add(found, this.#code)
      else if (form === IS_CODE) this.#add(text, this.#code ? BOLD_CODE : CODE)
      else text.split(/`([^`]+)`/).forEach((part, at) => this.#add(part, at % 2 ? BOLD_CODE : BOLD))
      this.#before = found.at(-1)!
      this.#held = held.slice(found.length)
    }
  }

  /** Add characters to the word; white space, and wide characters, end it. */
  #add(text: string, code: string): void {
    for (const char of text) {
      const first = this.#word[0]?.[0]
      const isWide = width(char) === 2 || (first && width(first) === 2)
      const isPart = width(char) === 0 || NEVER_FIRST.includes(char)
      const isSpace = ' \t\n'.includes(char)
      const isJoined = this.#word.at(-1)?.[0] === '\u200d' // of two emojis
      if (isSpace || (isWide && !isPart && !isJoined)) this.#endWord()
      if (char === '\n') {
        this.#out += char
        this.#start = this.#space = ''
      } else if (isSpace) {
        const blank = this.#fence || char === ' ' ? char : '    '
        this.#space = (this.#space + blank).slice(0, LONGEST)
      } else {
        this.#word.push([char, code])
      }
    }
  }

  #endWord(): void {
    if (this.#word.length === 0) return
    const size = this.#word.reduce((sum, [char]) => sum + width(char), 0)
    const newLine = this.#room(this.#space.length + size)
    this.#out += newLine || this.#space
    if (!newLine) this.#column += this.#space.length
    let text = ''
    this.#word.forEach(([char, code], at) => {
      text += this.#room(width(char)) + char
      this.#column += width(char)
      if (this.#word[at + 1]?.[1] === code) return
      this.#out += this.#style ? this.#style(text, code) : text
      text = ''
    })
    this.#word = []
    this.#space = ''
  }

  /** Return what begins a new line, if that is needed for so many columns. */
  #room(size: number): string {
    if (this.#column <= this.#indent || this.#column + size <= this.#columns) return ''
    this.#columns = this.#measure()
    this.#column = this.#indent
    return `\n${' '.repeat(this.#indent)}`
  }
}
