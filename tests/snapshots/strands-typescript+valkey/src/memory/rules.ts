// The rules of rules.json as findings, and which of them a field breaks.

import type { z } from 'zod'

import type { Diagnostic } from '../settings.ts'
import type { Document } from './frontmatter.ts'
import json from './rules.json' with { type: 'json' }
import type { Where } from './yaml_core.ts'

export type Findings = Generator<Diagnostic>
type Names = Record<string, unknown>

const RULES = new Map(json.rules.map((rule) => [rule.id, rule]))
const FIELDS = json.rules.filter((rule) => rule.kind !== 'rule')
const BY_FIELD = new Map(
  FIELDS.map(({ id, file, field, kind }) => [`${file} ${field} ${kind}`, id]),
)
const TYPES = ['agentcore_memory', 'custom', 'lambda', 'rest-api', 's3', 'valkey']
// What could move a cursor, turn a text around or end a line where findings are printed.
const [SHORT, LONG] = [80, 300] // characters of what a file says, and of why something failed
const UNPRINTABLE =
  // oxlint-disable-next-line no-control-regex
  /[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/gu

/** A finding of rule `id`; `names` are those in its message. */
export function finding(id: string, file: string, line: number, names: Names = {}): Diagnostic {
  const { message, severity } = RULES.get(id)!
  return {
    id,
    severity: severity as Diagnostic['severity'],
    file: show(file),
    line,
    message: message.replace(/\{(\w+)\}/g, (all, name) =>
      show(Object.hasOwn(names, name) ? names[name] : all, name === 'why' ? LONG : SHORT),
    ),
  }
}

/** A value in one line of so many characters at most. */
function show(value: unknown, most = SHORT): string {
  const text = [...String(value).replace(UNPRINTABLE, '\ufffd')]
  return text.length <= most ? text.join('') : `${text.slice(0, most - 1).join('')}…`
}

/** A finding of rule `id` about what stands somewhere in a document, in its own words. */
export function at(id: string, document: Document, where: Where, names: Names = {}): Diagnostic {
  const value = (document.text(where) ?? 'a mapping or a list') || 'nothing'
  return finding(id, document.file, document.line(where), { value, ...names })
}

/** What is wrong with single fields of a document; `kind` is collection, agent or iam. */
export function wrongFields(kind: string, model: z.ZodType, document: Document): Diagnostic[] {
  const issues = model.safeParse(document.data).error?.issues ?? []
  return issues.flatMap((issue) => {
    const where = issue.path as (string | number)[]
    if (issue.code !== 'unrecognized_keys') return [wrongField(kind, document, where)]
    return issue.keys.map((key) => wrongField(kind, document, [...where, key], 'unknown'))
  })
}

function wrongField(kind: string, document: Document, where: Where, is?: 'unknown'): Diagnostic {
  const what = is ?? (document.hasPlace(where) ? 'invalid' : 'missing')
  if (what === 'invalid') document.invalidate(where)
  const names = namesOf(document, where)
  const name = (what === 'unknown' ? names.slice(0, -1) : names).join('.')
  const ofAnyTransport = name.replace(/transport\[[a-z-]+\]/, 'transport')
  const found = [name, ofAnyTransport].map((field) => BY_FIELD.get(`${kind} ${field} ${what}`))
  return at(found[0] ?? found[1]!, document, where, { name: where.at(-1) })
}

/** The way to a field as rules name it: backend[s3], region; without places in lists. */
function namesOf(document: Document, where: Where): string[] {
  const names: string[] = []
  for (const step of where) {
    const above = names.at(-1) ?? ''
    if (above === 'backend' || above === 'transport') {
      const type = document.getText('backend', ...(above === 'transport' ? [above] : []), 'type')
      if (type !== null && TYPES.includes(type)) names[names.length - 1] += `[${type}]`
    }
    if (typeof step === 'string') names.push(above === 'retrieval_config' ? '*' : step)
  }
  return names
}
