// Why a text is no YAML, and in which line: told from its lines, since parsers tell it apart.

import { Brackets, QUOTED, stripped } from './brackets.ts'
import type { Wrong } from './yaml_core.ts'

const KEY = new RegExp(`(?:(?:${QUOTED}) *|[^ "'#\\[\\]{}|>@\`%,].*?):(?= |$)`, 'y')
const DASH = /-( +|$)/y
const MARKS = /([&*!][^ ]* *)*/y
const BLOCK = /^[|>][-+1-9]{0,2}( +(#.*)?)?$/
const RESERVED = /^([\]},%@`]|[-?:]( |$)|.*:( |$))/

/** What is wrong with a text that a parser refuses: the first line that breaks a rule. */
export function broken(text: string): Wrong {
  const lines = new Lines()
  for (const [index, line] of text.split('\n').entries()) {
    const rule = lines.read(line, index + 2)
    if (rule === 'E0D4') break
    if (rule) return [`AML-${rule}`, index + 2, {}]
  }
  const bracket = lines.brackets.open.at(-1)
  return bracket ? ['AML-E0D4', bracket[1], { name: bracket[0] }] : ['AML-E002', 1, {}]
}

/** Reads lines of YAML one after the other. */
class Lines {
  readonly brackets = new Brackets()
  readonly #columns = [0] // where the mappings and lists around start
  /** Of each column: key, item, or a list right under its key: both. */
  readonly #kinds = new Map([[0, '']])
  #block: number | null = null // lines that start behind this column are a text
  #least = 0 // where that text starts itself, if it had a line
  #last = 'none' // what the value of the line above is: none, plain or whole

  /** The rule that one more line breaks. */
  read(line: string, number: number): string | null {
    const start = blanksFrom(line, 0)
    if (start === line.length || line[start] === '#') return null
    if (this.#block !== null && start > this.#block) {
      this.#least ||= start
      return start >= this.#least ? null : 'E0D5'
    }
    this.#block = null
    const column = this.#columns.at(-1)!
    if (this.brackets.open.length > 0) {
      const isInside = start > column || ']}'.includes(line[start]!)
      return isInside ? this.brackets.read(line, start, number) : 'E0D4'
    }
    const isDeeper = start > column
    // The text of the line above goes on.
    if (isDeeper && this.#last === 'plain' && endOf(KEY, line, start) < 0) return null
    while (start < this.#columns.at(-1)!) this.#close()
    if (start > this.#columns.at(-1)!) {
      if (!isDeeper || this.#last !== 'none') return 'E0D5'
      this.#open(start)
    }
    return this.#entry(line, start, number)
  }

  #open(column: number): void {
    this.#columns.push(column)
    this.#kinds.set(column, '')
  }

  #close(): void {
    this.#kinds.delete(this.#columns.pop()!)
  }

  /** Whether a key stands among items, or an item among keys. */
  #isMisplaced(column: number, kind: 'key' | 'item'): boolean {
    const known = this.#kinds.get(column)!
    const isUnder = kind === 'item' && known === 'key' && this.#last === 'none'
    const isBehind = kind === 'key' && known === 'both'
    if (known === '' || known === kind || isUnder || isBehind) {
      this.#kinds.set(column, isUnder ? 'both' : kind)
      return false
    }
    return !(kind === 'item' && known === 'both')
  }

  #entry(line: string, from: number, number: number): string | null {
    let [outside, isItem, start] = [from, false, from]
    for (let end = endOf(DASH, line, start); end >= 0; end = endOf(DASH, line, start)) {
      if (this.#isMisplaced(start, 'item')) return 'E0D5'
      ;[outside, isItem, start] = [start, true, end]
      this.#open(start)
    }
    const end = endOf(KEY, line, start)
    if (end >= 0) {
      if (this.#isMisplaced(start, 'key')) return 'E0D5'
      ;[outside, start] = [start, end]
    } else if (!isItem && !'[{"\''.includes(line[start]!)) {
      if (this.#kinds.get(start) || start === 0) return 'E002'
      this.#close() // the text of the key above
    }
    start = endOf(MARKS, line, blanksFrom(line, start))
    const value = stripped(line.slice(start).split(' #')[0]!)
    const [first = '#', second = '', third = ''] = value
    this.#last = first === '#' ? 'none' : 'whole'
    if (first === '|' || first === '>') {
      this.#block = outside
      this.#least = /[0-9]/.test(second + third) ? 1 : 0
      return BLOCK.test(line.slice(start)) ? null : 'E002'
    }
    if ('#[{"\''.includes(first)) return this.brackets.read(line, start, number)
    this.#last = stripped(line).endsWith(value) ? 'plain' : 'whole'
    return RESERVED.test(value) ? 'E0D6' : null
  }
}

/** Where a sticky pattern that starts here ends; -1: it does not match. */
function endOf(pattern: RegExp, line: string, start: number): number {
  pattern.lastIndex = start
  return pattern.test(line) ? pattern.lastIndex : -1
}

function blanksFrom(line: string, start: number): number {
  let end = start
  while (line[end] === ' ') end += 1
  return end
}
