// What is refused in front matter before it is parsed: what it never needs.

import type { Wrong } from './yaml_core.ts'

// No front matter needs these, and parsers disagree on them: tabs and other control
// characters, directives, the marks of further documents, lines of `? key` or `: value`, and a
// colon that ends in brackets.
const UNSAFE = new RegExp(
  '[\\x00-\\x09\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ufeff\\ufffe\\uffff]' +
    '|^(%|---|[.]{3}|[ -]*[?:]( |$))|:[}\\],]',
  'm',
)
const REFUSED = new Map([
  ['\t', 'E0D0'],
  ['%', 'E0D2'],
  ['---', 'E0D2'],
  ['...', 'E0D2'],
])

/** What is refused in a text though it may be YAML, and in which line of its file. */
export function unsafe(text: string): Wrong | null {
  const match = UNSAFE.exec(text)
  if (match === null) return null
  const rule = REFUSED.get(match[0]) ?? (/^[ -~]/.test(match[0]) ? 'E002' : 'E0D1')
  return [`AML-${rule}`, text.slice(0, match.index).split('\n').length + 1, {}]
}
