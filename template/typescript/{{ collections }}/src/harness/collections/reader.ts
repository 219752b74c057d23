// Read the front matter of a Markdown file: its values and their line numbers.
//
// Front matter is the text between a first line of --- and the next such line. It is YAML 1.2
// without the features that make a file hard to review.

import { readFileSync, statSync } from 'node:fs'

import { CST, isMap, isScalar, isSeq, Lexer, LineCounter, parseDocument } from 'yaml'
import type { ParsedNode } from 'yaml'

import { diagnostic, type Finding } from '../findings.ts'

const MAX_BYTES = 100_000
const MAX_DEPTH = 32
const MAX_MESSAGE_CHARS = 300
// Characters that could move the cursor, reverse text or break a line in printed findings.
const UNPRINTABLE =
  // oxlint-disable-next-line no-control-regex
  /[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/gu
// oxlint-disable-next-line no-control-regex
const CONTROL = /[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]/
const ALIAS = 'Anchors and aliases (& and *) are not allowed: write the value out, or quote it.'
const DEEP = `The front matter is nested more than ${MAX_DEPTH} levels deep: flatten it.`
const TAG = 'Tags such as !!str are not allowed: put text in quotes.'

/** Mapping keys and list indexes, from the root. */
export type Path = readonly PropertyKey[]
type Fields = Record<string, unknown>
export type Findings = Generator<Finding>

/** The front matter of a file; `data` is null if `errors` is not empty. */
export class Document {
  readonly file: string
  readonly data: Fields | null
  readonly errors: Finding[]
  readonly #lines: ReadonlyMap<string, number>

  constructor(
    file: string,
    data: Fields | null,
    errors: Finding[],
    lines: ReadonlyMap<string, number> = new Map(),
  ) {
    this.file = file
    this.data = data
    this.errors = errors
    this.#lines = lines
  }

  /** Return the line of a key or list item, or of its parent if it is absent. */
  line(path: Path): number {
    const found = this.#lines.get(JSON.stringify(path))
    return found ?? (path.length > 0 ? this.line(path.slice(0, -1)) : 1)
  }

  has(path: Path): boolean {
    return this.#lines.has(JSON.stringify(path))
  }

  /** Return a finding about a field. */
  finding(id: string, message: string, ...path: Path): Finding {
    return finding(id, this.file, this.line(path), message)
  }
}

/** Return a diagnostic on one printable line; E or W in its id sets the severity. */
export function finding(id: string, file: string, line: number, message: string): Finding {
  const text = [...message.replace(UNPRINTABLE, '\ufffd')]
  const isLong = text.length > MAX_MESSAGE_CHARS
  const shortened = isLong ? `${text.slice(0, MAX_MESSAGE_CHARS - 1).join('')}…` : text.join('')
  const severity = id.startsWith('AML-E') ? 'error' : 'warning'
  return diagnostic(id, shortened, severity, file.replace(UNPRINTABLE, '\ufffd'), line)
}

/** Read the file at `path`; findings show it as `file`. Never throws. */
export function readDocument(path: string, file: string): Document {
  let content: Buffer
  try {
    const status = statSync(path)
    if (!status.isFile()) throw new Error('not a regular file')
    if (status.size > MAX_BYTES) return tooLarge(file)
    content = readFileSync(path)
  } catch {
    const message = 'The file cannot be read: put a readable regular file here.'
    return new Document(file, null, [finding('AML-E00E', file, 0, message)])
  }
  return parseFrontMatter(content, file)
}

/** Parse the content of a file; findings show it as `file`. Never throws. */
export function parseFrontMatter(content: Uint8Array, file: string): Document {
  const rejected = (id: string, line: number, message: string) =>
    new Document(file, null, [finding(id, file, line, message)])
  if (content.length > MAX_BYTES) return tooLarge(file)
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(content).replace(/\r\n?/g, '\n')
  } catch {
    return rejected('AML-E00B', 1, 'The file is not UTF-8: save it as UTF-8.')
  }
  const [first = '', ...rest] = text.split('\n')
  const end = rest.findIndex((line) => /^---[ \t]*$/.test(line))
  const hasStart = /^---[ \t]*([ \t]#.*)?$/.test(first) // may end with a comment
  if (!hasStart || end < 0) {
    const place = 'put it at the top of the file, between two lines of ---'
    return rejected('AML-E001', 1, `The front matter is missing: ${place}.`)
  }
  return new Reader(file, `${rest.slice(0, end).join('\n')}\n`).read()
}

function tooLarge(file: string): Document {
  const message = `The file is larger than ${MAX_BYTES} bytes: shorten it.`
  return new Document(file, null, [finding('AML-E00C', file, 1, message)])
}

/** Reads a document from the parser's tokens and nodes, and collects errors. */
class Reader {
  readonly #file: string
  readonly #text: string
  readonly #counter = new LineCounter()
  readonly #lines = new Map<string, number>()
  readonly #errors: Finding[] = []

  constructor(file: string, text: string) {
    this.#file = file
    this.#text = text
  }

  read(): Document {
    let data: unknown = null
    this.#checkTokens()
    if (this.#errors.length === 0) {
      try {
        data = this.#parse()
      } catch (error) {
        if (!(error instanceof RangeError)) throw error // the parser's stack is exhausted
        this.#addError('AML-E00D', 1, DEEP)
      }
    }
    const isMapping = typeof data === 'object' && data !== null && !Array.isArray(data)
    if (!isMapping && this.#errors.length === 0) {
      const message = 'The front matter must be a mapping: write lines of `key: value`.'
      this.#addError('AML-E005', 1, message)
    }
    const fields = this.#errors.length === 0 ? (data as Fields) : null
    return new Document(this.#file, fields, this.#errors, this.#lines)
  }

  #checkTokens(): void {
    const control = CONTROL.exec(this.#text)
    if (control) {
      const place = this.#text.slice(0, control.index).split('\n').length + 1
      const message = 'Tabs and control characters are not allowed: write spaces instead.'
      return this.#addError('AML-E0D1', place, message)
    }
    let line = 2
    let level = 0
    let isScalar = false
    for (const token of new Lexer().lex(this.#text)) {
      const type = isScalar ? 'scalar' : CST.tokenType(token)
      if (type === 'alias' || type === 'anchor') this.#addError('AML-E007', line, ALIAS)
      if (type === 'tag') this.#addError('AML-E008', line, TAG)
      if (type === 'flow-seq-start' || type === 'flow-map-start') level++
      if (type === 'flow-seq-end' || type === 'flow-map-end') level--
      if (level > MAX_DEPTH) return this.#addError('AML-E00D', 1, DEEP)
      isScalar = token === CST.SCALAR // the next token is the scalar itself
      line += token.split('\n').length - 1
    }
  }

  #parse(): unknown {
    const document = parseDocument(this.#text, {
      lineCounter: this.#counter,
      logLevel: 'error', // silent would accept a second document
      prettyErrors: false,
      uniqueKeys: false,
    })
    const [error] = document.errors
    if (error) {
      this.#addError('AML-E002', this.#lineAt(error.pos[0]), `Invalid YAML: ${error.message}.`)
      return null
    }
    return this.#value(document.contents, [], 1, 1)
  }

  #value(node: ParsedNode | null, path: Path, line: number, level: number): unknown {
    if (level > MAX_DEPTH) throw new RangeError('too many levels')
    this.#lines.set(JSON.stringify(path), line)
    if (isMap<ParsedNode, ParsedNode | null>(node)) {
      const values: Fields = Object.create(null) // __proto__ is an ordinary key
      for (const { key, value } of node.items) {
        const at = this.#lineAt(key.range[0])
        const name = this.#key(key, at, values)
        if (name !== null) values[name] = this.#value(value, [...path, name], at, level + 1)
      }
      return values
    }
    if (isSeq<ParsedNode>(node)) {
      return node.items.map((item, index) => {
        // Parsers disagree on the position of an empty item.
        const isEmpty = isScalar(item) && !item.source
        const at = isEmpty ? line : this.#lineAt(item.range[0])
        return this.#value(item, [...path, index], at, level + 1)
      })
    }
    return isScalar(node) ? node.value : null
  }

  /** Return the name of a key, or null if it is rejected. */
  #key(key: ParsedNode, line: number, values: Fields): string | null {
    if (!isScalar(key) || typeof key.value !== 'string') {
      this.#addError('AML-E00A', line, 'A key is not text: put it in quotes.')
    } else if (key.value === '<<' && key.type === 'PLAIN') {
      this.#addError('AML-E009', line, 'Merge keys (<<) are not allowed: write the keys out.')
    } else if (key.value in values) {
      this.#addError('AML-E006', line, `The key ${key.value} is repeated in its mapping: keep one.`)
    } else return key.value
    return null
  }

  #addError(id: string, line: number, message: string): void {
    this.#errors.push(finding(id, this.#file, line, message))
  }

  /** Return the line of an offset; the front matter starts on line 2 of its file. */
  #lineAt(offset: number): number {
    return this.#counter.linePos(offset).line + 1
  }
}
