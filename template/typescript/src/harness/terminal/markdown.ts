// Markdown in a terminal: styles, colored code, and streaming replies.

import { stripVTControlCharacters, styleText } from 'node:util'

import {
  Markdown,
  type MarkdownTheme,
  Marked,
  setCapabilityOverrides,
  type Token,
  wrapTextWithAnsi,
} from '@earendil-works/pi-tui'
import * as languages from '@speed-highlight/core/languages'
import colors from '@speed-highlight/core/themes/default.js'
import { type ShjLanguageData, type ShjToken, tokenizeWith } from '@speed-highlight/core/tokenize'

const PAUSE_MS = 50
const MAX_MARKS = 1500 // per block: parsing time grows with their square
const HAS_STYLES = styleText('bold', 'text') !== 'text' // depends on the terminal and NO_COLOR
const RESET_COLOR = '\x1b[39m'
type Languages = Record<string, ShjLanguageData>

const LANGUAGES = {
  ...languages,
  javascript: languages.js,
  python: languages.py,
  rust: languages.rs,
  sh: languages.bash,
  shell: languages.bash,
  typescript: languages.ts,
  yml: languages.yaml,
}
const style = (format: Parameters<typeof styleText>[0]) => (text: string) => styleText(format, text)
const plain = (text: string) => text
const THEME: MarkdownTheme = {
  bold: style('bold'),
  code: style('cyan'),
  codeBlock: plain,
  codeBlockBorder: style('dim'),
  codeBlockIndent: '', // keeps code copyable
  heading: plain, // already bold
  highlightCode,
  hr: style('dim'),
  italic: style('italic'),
  link: plain, // already underlined
  linkUrl: style('dim'),
  listBullet: (mark) => mark.replace('-', '•'),
  quote: style('italic'),
  quoteBorder: style('dim'),
  strikethrough: style('strikethrough'),
  underline: style('underline'),
}
const OPTIONS = { renderLatex: false } // shells and prices use `$`
// Code, which stays unchanged, or hidden parts: the mark of an image, or a comment.
const HIDING = /(`+)[^`][^]*?\1(?!`)|!(?=\[)|<!--/g
const SHOWN: Record<string, string> = { '!': '', '<!--': '\\<!--' }

setCapabilityOverrides({ hyperlinks: false, images: null }) // show link addresses

/** Return the lines of code, colored for known languages. */
function highlightCode(code: string, name = ''): string[] {
  let colored = ''
  const add = (text: string, kind?: ShjToken) => {
    const color = kind && colors[kind as keyof typeof colors]
    colored += color ? text.replace(/[^\n]+/g, (line) => color + line + RESET_COLOR) : text
  }
  tokenizeWith(code, name.toLowerCase(), add, { languages: LANGUAGES as Languages })
  return colored.split('\n')
}

/** Return the blocks of Markdown without parsing their content. */
function blocksOf(text: string): Token[] {
  const { Lexer } = new Marked()
  return new Lexer().blockTokens(text)
}

/** Render Markdown as lines. Throws RangeError for deep nesting. */
function render(text: string): string[] {
  const shown = blocksOf(text).map(prepare).join('')
  const lines = new Markdown(shown, 0, 0, THEME, undefined, OPTIONS).render(columns())
  const styled = HAS_STYLES ? lines : lines.map(stripVTControlCharacters)
  return styled.map((line) => line.trimEnd())
}

/** Prepare a block: images become links, HTML and definitions become text. */
function prepare({ type, raw }: Token): string {
  if (type === 'code') return raw
  if (type === 'def') return raw.replace(']:', ']\\:')
  if (type === 'html') return raw.replaceAll('<', '\\<')
  const isHostile = (raw.match(/[*_<[!~]/g)?.length ?? 0) > MAX_MARKS
  if (isHostile) return `\n\n${raw.replace(/^/gm, '    ')}\n\n` // as code
  return raw.replace(HIDING, (found) => SHOWN[found] ?? found)
}

/** Return the last block of Markdown, which later text can change. */
function lastBlock(text: string): string {
  const last = blocksOf(text).findLast(({ type }) => type !== 'space')
  if (!last) return text
  const start = text.lastIndexOf(last.raw.trimEnd()) // -1 where marked normalized the block
  return text.slice(Math.max(start, 0))
}

/** Wrap plain text at spaces. */
export function wrap(text: string): string {
  return wrapTextWithAnsi(text, columns()).join('\n')
}

/** Return the lines of text as dim lines that fit the terminal. */
function dimLines(text: string): string[] {
  if (!text) return []
  const lines = wrapTextWithAnsi(text.replace(/\n$/, ''), columns())
  return lines.map((line) => styleText('dim', line))
}

function columns(): number {
  return Math.max(process.stdout.columns || 80, 10)
}

/**
 * Prints finished blocks of streaming Markdown; redraws the last block while it grows.
 *
 * Reasoning is dim text, and its blocks are lines.
 */
export class LiveMarkdown {
  readonly #isReasoning: boolean
  #text = '' // unfinished Markdown
  #rows = 0 // drawn rows of the last block
  #pause = PAUSE_MS
  #timer: NodeJS.Timeout | undefined

  constructor(isReasoning: boolean) {
    this.#isReasoning = isReasoning
  }

  /** Show more text after a pause. */
  add(text: string): void {
    this.#text += text
    this.#timer ??= setTimeout(() => this.#draw(), this.#pause)
  }

  /** Print the remaining text. */
  end(): void {
    this.#draw(true)
    this.#text = ''
    this.#rows = 0
  }

  #draw(isEnd = false): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    const start = performance.now()
    const { finished, live, text } = this.#layOut()
    const room = isEnd ? live.length : (process.stdout.rows || 24) - 1
    const visible = room > 0 ? live.slice(-room) : []
    const erase = this.#rows > 0 ? `\x1b[${this.#rows}A\x1b[J` : ''
    const lines = [...finished, ...visible].map((line) => `${line}\n`)
    process.stdout.write(erase + lines.join(''))
    this.#rows = visible.length
    this.#text = text
    this.#pause = Math.max(PAUSE_MS, performance.now() - start) // draw at most half the time
  }

  /** Return the lines of the finished blocks, and lines and text of the last block. */
  #layOut(): { finished: string[]; live: string[]; text: string } {
    try {
      if (this.#isReasoning) {
        const end = this.#text.lastIndexOf('\n') + 1
        const text = this.#text.slice(end)
        return { finished: dimLines(this.#text.slice(0, end)), live: dimLines(text), text }
      }
      const text = lastBlock(this.#text)
      const lines = render(this.#text)
      const live = text === this.#text ? lines : render(text)
      return { finished: lines.slice(0, lines.length - live.length), live, text }
    } catch {
      return { finished: wrapTextWithAnsi(this.#text, columns()), live: [], text: '' }
    }
  }
}
