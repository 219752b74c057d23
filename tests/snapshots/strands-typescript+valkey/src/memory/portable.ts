// What YAML parsers disagree on is refused, so that a file means the same wherever it is read.

import { type Document, isMap, isScalar, type Node, type Pair, visit, type YAMLMap } from 'yaml'

// A quoted text in one line that ends where it says.
const QUOTED = /^("([^"\\\n]|\\[^\n])*"|'([^'\n]|'')*')$/

/** From where on a text, parsed to a document, is no YAML or refused; Infinity: it is not. */
export function brokenFrom({ errors, contents }: Document.Parsed, text: string): number {
  const broken = errors.filter(({ code }) => code !== 'BAD_ALIAS').map(({ pos }) => pos[0])
  visit(contents, {
    Scalar: (_, node) => {
      const isQuoted = node.type === 'QUOTE_DOUBLE' || node.type === 'QUOTE_SINGLE'
      const written = text.slice(node.range![0], node.range![1])
      const isAlone = node.type === 'PLAIN' && ['-', '?', ':'].includes(written)
      if (isAlone || (isQuoted && !QUOTED.test(written))) broken.push(node.range![0])
    },
    // A pair in a list lacks its braces, or a line has two colons.
    Map: (_, { flow, items, range }) => {
      const isEmpty = ({ key }: Pair) => (key as Node).range![0] === (key as Node).range![1]
      if (flow ? text[range![0]] !== '{' : items.some(isEmpty)) broken.push(range![0])
    },
    // A key without quotes goes over several lines, or a line has two of them.
    Pair: (_, { key, value }) => {
      const [start, end] = (key as Node | null)?.range ?? [0, 0]
      const isLong = isScalar(key) && text.slice(start, end).includes('\n')
      const isInLine = isBlock(value) && !text.slice(start, value.range![0]).includes('\n')
      if (isLong || isInLine || isBlock(key)) broken.push(start)
    },
  })
  return broken.reduce((least, one) => Math.min(least, one), Infinity)
}

function isBlock(node: unknown): node is YAMLMap {
  return isMap(node) && !node.flow
}
