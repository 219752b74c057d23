// The front matter of a Markdown file: what stands between its first line, ---, and the next.

import { readFileSync, statSync } from 'node:fs'

import { broken } from './broken.ts'
import { unsafe } from './unsafe.ts'
import { type Fields, keyOf, LEVELS, NoYaml, Reader, TooDeep } from './yaml_core.ts'
import type { Where, Wrong } from './yaml_core.ts'

const BYTES = 100_000

/** What a file says, where in it, and in which words; `data` is null where `wrong` says why. */
export class Document {
  readonly file: string
  readonly data: Fields | null
  readonly wrong: Wrong[]
  readonly #lines: Map<string, number>
  readonly #texts: Map<string, string>
  /** What a finding already says is no value. */
  readonly #invalid = new Set<string>()

  constructor(file: string, data: Fields | null, { wrong = [], lines, texts }: Partial<Reader>) {
    this.file = file
    this.data = data
    this.wrong = wrong
    this.#lines = lines ?? new Map()
    this.#texts = texts ?? new Map()
  }

  /** The line of a key or of an item of a list; of what it would stand in where absent. */
  line(where: Where): number {
    const found = this.#lines.get(keyOf(where))
    return found ?? (where.length > 0 ? this.line(where.slice(0, -1)) : 1)
  }

  /** A scalar as it is written. */
  text(where: Where): string | undefined {
    return this.#texts.get(keyOf(where))
  }

  /** All scalars as they are written, and where. */
  texts(): [where: Where, text: string][] {
    return [...this.#texts].map(([where, text]) => [JSON.parse(where) as Where, text])
  }

  /** Whether there is a key or an item, whatever its value. */
  hasPlace(where: Where): boolean {
    return this.#lines.has(keyOf(where))
  }

  invalidate(where: Where): void {
    this.#invalid.add(keyOf(where))
  }

  isInvalid(...where: Where): boolean {
    return this.#invalid.has(keyOf(where))
  }

  /** The value there, or null where there is none, or none that is valid. */
  get(...where: Where): unknown {
    let value: unknown = this.data
    for (const [index, step] of where.entries()) {
      if (value === null || value === undefined) return null
      if (this.isInvalid(...where.slice(0, index + 1))) return null
      value = (value as Record<string | number, unknown>)[step]
    }
    return value ?? null
  }

  /** The text there, or null where there is none, or none that is valid. */
  getText(...where: Where): string | null {
    const value = this.get(...where)
    return typeof value === 'string' ? value : null
  }

  /** The keys of the mapping there. */
  keys(...where: Where): string[] {
    return Object.keys(this.get(...where) ?? {})
  }

  /** Whether a mapping that is there lacks nothing in this place, however invalid. */
  has(...where: Where): boolean {
    return this.keys(...where.slice(0, -1)).includes(String(where.at(-1)))
  }
}

/** The front matter of the file at `path`, which findings call `file`. Never throws. */
export function read(path: string, file: string): Document {
  try {
    const status = statSync(path)
    if (!status.isFile()) throw new Error('no file')
    return parse(status.size > BYTES ? Buffer.alloc(BYTES + 1) : readFileSync(path), file)
  } catch {
    return new Document(file, null, { wrong: [['AML-E00E', 0, {}]] })
  }
}

/** The front matter of a file with this content. Never throws. */
export function parse(content: Buffer, file: string): Document {
  if (content.length > BYTES) return refused(file, 'AML-E00C', { limit: BYTES })
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(content).replace(/\r\n?/g, '\n')
  } catch {
    return refused(file, 'AML-E00B')
  }
  const lines = text.split('\n')
  const [first, ...rest] = lines.map((line) => line.replace(/^---[ \t]*$/, '---'))
  const end = rest.indexOf('---')
  if (first !== '---') return refused(file, 'AML-E001')
  if (end < 0) return refused(file, 'AML-E0D8')
  const inner = `${rest.slice(0, end).join('\n')}\n`
  const wrong = unsafe(inner)
  if (wrong) return new Document(file, null, { wrong: [wrong] })
  const reader = new Reader(inner)
  let data: unknown
  try {
    data = reader.read()
  } catch (error) {
    if (error instanceof TooDeep) return refused(file, 'AML-E00D', { limit: LEVELS })
    if (error instanceof NoYaml) return new Document(file, null, { wrong: [broken(inner)] })
    throw error
  }
  if (reader.wrong.length > 0) return new Document(file, null, { wrong: reader.wrong })
  if (typeof data !== 'object' || data === null || Array.isArray(data)) {
    return refused(file, 'AML-E005')
  }
  return new Document(file, data as Fields, reader)
}

function refused(file: string, id: string, names: Record<string, unknown> = {}): Document {
  return new Document(file, null, { wrong: [[id, 1, names]] })
}
