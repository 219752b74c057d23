// YAML 1.2 core: the values of a text, the line of each key, and what is refused in it.

import { isAlias, isMap, isScalar, LineCounter, parseDocument } from 'yaml'
import type { ParsedNode, Scalar, YAMLMap, YAMLSeq } from 'yaml'

import { brokenFrom } from './portable.ts'
import { scalar, textOf } from './scalars.ts'

export const LEVELS = 32
/** Where a value stands: keys of mappings and places in lists, from the top. */
export type Where = readonly (string | number)[]
/** A rule's id, a line, and the names in its message. */
export type Wrong = [id: string, line: number, names: Record<string, unknown>]
/** A mapping, without prototype: `constructor` is a key like any other. */
export type Fields = Record<string, unknown>
type Node = ParsedNode | null

/** A place as the key of a map. */
export function keyOf(where: Where): string {
  return JSON.stringify(where)
}

/** That the text is nested too deeply. */
export class TooDeep extends Error {}

/** That the text is no YAML. */
export class NoYaml extends Error {}

/**
 * Reads one document from the parser's nodes, which still show anchors and aliases.
 *
 * `lines` has where each key and item stands, the text starting in line 2 of its file; `texts`
 * has the scalars as they are written; `wrong` has what is refused.
 */
export class Reader {
  readonly lines = new Map<string, number>([[keyOf([]), 1]])
  readonly texts = new Map<string, string>()
  readonly wrong: Wrong[] = []
  readonly #counter = new LineCounter()
  #broken = Infinity // from where on it is no YAML
  readonly #text: string

  constructor(text: string) {
    this.#text = text
  }

  /** The value of the document. Throws TooDeep and NoYaml, whatever comes first. */
  read(): unknown {
    let contents: Node
    try {
      contents = this.#parse()
    } catch (error) {
      throw error instanceof RangeError ? new TooDeep() : new NoYaml()
    }
    const value = this.#node(contents, [], 1)
    if (this.#broken < Infinity) throw new NoYaml()
    return value
  }

  #parse(): Node {
    const options = { uniqueKeys: false, prettyErrors: false, resolveKnownTags: false } as const
    const document = parseDocument(this.#text, {
      ...options,
      lineCounter: this.#counter,
      logLevel: 'silent',
    })
    this.#broken = brokenFrom(document, this.#text)
    return document.contents
  }

  #node(node: Node, where: Where, level: number): unknown {
    this.#descend(node, level)
    if (isAlias(node) || node?.anchor !== undefined) this.#refuse('E007', where)
    else if (node?.tag !== undefined) this.#refuse('E008', where)
    if (isAlias(node)) return null
    if (isMap(node)) return this.#mapping(node as YAMLMap<Node, Node>, where, level)
    if (node !== null && !isScalar(node)) return this.#items(node as YAMLSeq<Node>, where, level)
    const [text, isPlain] = textOf(node as Scalar | null)
    this.texts.set(keyOf(where), text)
    return isPlain ? scalar(text) : text
  }

  #items(list: YAMLSeq<Node>, where: Where, level: number): unknown[] {
    const above = this.lines.get(keyOf(where)) ?? 1
    return list.items.map((item, index) => {
      const here = [...where, index]
      const isEmpty = item === null || (isScalar(item) && textOf(item)[0] === '')
      this.lines.set(keyOf(here), isEmpty ? above : this.#lineAt(this.#start(item)))
      return this.#node(item, here, level + 1)
    })
  }

  #mapping(map: YAMLMap<Node, Node>, where: Where, level: number): Fields {
    const values: Fields = Object.create(null)
    for (const { key, value } of map.items) {
      const line = this.#lineAt(key?.range[0] ?? 0)
      const name = isScalar(key) ? textOf(key)[0] : ''
      const rule = wrongKey(key, values)
      if (rule) {
        this.wrong.push([`AML-${rule}`, line, { name }])
        this.#skip(key, level + 1)
        this.#skip(value, level + 1)
      } else {
        this.lines.set(keyOf([...where, name]), line)
        values[name] = this.#node(value, [...where, name], level + 1)
      }
    }
    return values
  }

  #skip(node: Node, level: number): void {
    this.#descend(node, level)
    if (isMap(node)) {
      for (const { key, value } of (node as YAMLMap<Node, Node>).items) {
        this.#skip(key, level + 1)
        this.#skip(value, level + 1)
      }
    } else if (node !== null && !isScalar(node) && !isAlias(node)) {
      for (const item of (node as YAMLSeq<Node>).items) this.#skip(item, level + 1)
    }
  }

  #descend(node: Node, level: number): void {
    if (level > LEVELS) throw (node?.range[0] ?? 0) < this.#broken ? new TooDeep() : new NoYaml()
  }

  #refuse(rule: string, where: Where): void {
    this.wrong.push([`AML-${rule}`, this.lines.get(keyOf(where)) ?? 1, {}])
  }

  /** Where an item starts, with its anchor or tag. */
  #start({ anchor, tag, range: [start] }: ParsedNode): number {
    const mark = anchor === undefined ? '!' : `&${anchor}`
    return tag === undefined && anchor === undefined ? start : this.#text.lastIndexOf(mark, start)
  }

  #lineAt(offset: number): number {
    return this.#counter.linePos(offset).line + 1
  }
}

function wrongKey(key: Node, values: Fields): string | null {
  if (isAlias(key) || key?.anchor !== undefined) return 'E007'
  if (key?.tag !== undefined) return 'E008'
  if (key !== null && !isScalar(key)) return 'E00A'
  const [text, isPlain] = textOf(key as Scalar | null)
  if (isPlain && text === '<<') return 'E009'
  if (isPlain && typeof scalar(text) !== 'string') return 'E00A'
  return text in values ? 'E006' : null
}
