// YAML 1.2 core: the values of scalars.

import type { Scalar } from 'yaml'

const CONSTANTS = new Map<string, unknown>([
  ...['', '~', 'null', 'Null', 'NULL'].map((text) => [text, null] as const),
  ...['true', 'True', 'TRUE'].map((text) => [text, true] as const),
  ...['false', 'False', 'FALSE'].map((text) => [text, false] as const),
])
const NUMBER = /^(0o[0-7]+|0x[0-9a-fA-F]+|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?)$/
const NO_DECIMAL = /^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$/

/** The value of a plain scalar: there are no dates, and `yes` and `010` mean nothing special. */
export function scalar(text: string): unknown {
  if (CONSTANTS.has(text)) return CONSTANTS.get(text)
  if (NUMBER.test(text)) return Number(text) + 0 // without -0
  if (!NO_DECIMAL.test(text)) return text
  return text.startsWith('-') ? -Infinity : /n$/i.test(text) ? NaN : Infinity
}

/** A scalar as it is written, without its quotes, and whether it has none. */
export function textOf(node: Scalar | null): [text: string, isPlain: boolean] {
  return [node?.source?.toWellFormed() ?? '', node === null || node.type === 'PLAIN']
}
