// Checks tools (name, description, JSON Schema) and tool calls against the rules of providers.
//
// The rules come from the references and error messages of OpenAI, Anthropic and Amazon Bedrock. A
// provider that rejects a tool rejects the whole request, and so every turn.

import { diagnostic, type Finding } from './findings.ts'
import { causesOf } from './log.ts'

export type Schema = Record<string, unknown>
/** The name, the description and the JSON Schema of a tool. */
export type Declaration = [name: string, description: string, schema: unknown]

// OpenAI's maximum is 40 characters. The SDKs store calls by id on plain objects.
export const CALL_ID = /^(?!__proto__$)[a-zA-Z0-9_-]{1,40}$/
export const NAME = '[a-zA-Z0-9_-]{1,64}'
export const PROPERTY_KEY = '[a-zA-Z0-9_.-]{1,64}'
export const MAX_DESCRIPTION_CHARS = 1024
// Results of rejected calls.
export const INVALID_ARGUMENTS =
  'The arguments of this call are not one JSON object, so the tool did not run. ' +
  'Send the call again. Received: '
export const MAX_QUOTED_CHARS = 200 // from an invalid name or invalid arguments
const TOP_LEVEL_FORBIDDEN = ['allOf', 'anyOf', 'oneOf', 'enum', 'not']
// The keywords whose values contain schemas: a schema, a list or a map.
export const SCHEMAS = [
  'additionalItems',
  'additionalProperties',
  'contains',
  'else',
  'if',
  'items',
  'not',
  'propertyNames',
  'then',
  'unevaluatedItems',
  'unevaluatedProperties',
]
export const LISTS = ['allOf', 'anyOf', 'oneOf', 'prefixItems']
export const MAPS = ['$defs', 'definitions', 'dependentSchemas', 'patternProperties', 'properties']

/** Return findings about tools that a provider or a model cannot use. */
export function checkTools(declarations: readonly Declaration[]): Finding[] {
  const findings: Finding[] = []
  const names = new Set<string>()
  const repeated = new Set<string>()
  for (const declared of declarations) {
    const [name, description] = declared
    const problems = problemsOf(...declared)
    if (!description.trim()) {
      problems.push('it has no description: tell the model when to call it')
    }
    findings.push(...problems.map((problem) => report(`Tool ${name}: ${problem}.`)))
    if (names.has(name)) repeated.add(name)
    names.add(name)
  }
  for (const name of repeated) {
    findings.push(report(`Tool ${name}: another tool has this name: rename one of them.`))
  }
  return findings
}

/** Return the result of a call above the limit of a step. */
export function tooMany(maxCalls: number): string {
  return `Too many calls in one step: at most ${maxCalls} run.`
}

/** Return a finding about the agent's own tools. */
export function report(message: string): Finding {
  return diagnostic('TOOL', message, 'warning', 'src/agent.ts')
}

/** Return the reasons why a provider may reject a tool. */
export function problemsOf(...[name, description, schema]: Declaration): string[] {
  const problems: string[] = []
  if (!matches(NAME, name)) problems.push(`its name must match ${NAME}`)
  const size = [...description].length
  if (size > MAX_DESCRIPTION_CHARS) {
    const what = `${size} characters, the maximum is ${MAX_DESCRIPTION_CHARS}`
    problems.push(`its description has ${what}`)
  }
  if (!isObject(schema) || schema.type !== 'object') {
    return [...problems, 'its schema must be of type object']
  }
  for (const key of TOP_LEVEL_FORBIDDEN) {
    if (Object.hasOwn(schema, key)) problems.push(`its schema has ${key} at the top level`)
  }
  if (!isObject(schema.properties)) problems.push('its schema has no properties')
  for (const [path, part] of partsOf(schema)) {
    const place = path.join('.') || 'the top level'
    if (Array.isArray(part.items)) {
      problems.push(`the tuple at ${place} needs prefixItems, not a list of items`)
    } else if (part.type === 'array' && part.items === undefined && !part.prefixItems) {
      problems.push(`the array at ${place} has no items`)
    }
    for (const key of isObject(part.properties) ? Object.keys(part.properties) : []) {
      if (!matches(PROPERTY_KEY, key)) {
        problems.push(`the property '${key}' at ${place} must match ${PROPERTY_KEY}`)
      }
    }
    const ref = part.$ref
    if (typeof ref === 'string' && targetOf(schema, ref) === undefined) {
      problems.push(`the $ref at ${place} has no target`)
    }
  }
  return problems
}

/** Yield each object in a schema, with its path. */
export function* partsOf(
  schema: unknown,
  path: string[] = [],
): Generator<[path: string[], part: Schema]> {
  if (!isObject(schema)) return
  yield [path, schema]
  for (const [key, value] of Object.entries(schema)) {
    const isMap = MAPS.includes(key) && isObject(value)
    if (isMap) {
      for (const [name, part] of Object.entries(value)) yield* partsOf(part, [...path, key, name])
    } else if (SCHEMAS.includes(key) || LISTS.includes(key)) {
      if (!Array.isArray(value)) yield* partsOf(value, [...path, key])
      else for (const [n, part] of value.entries()) yield* partsOf(part, [...path, key, `${n}`])
    }
  }
}

/** Return the target of a `$ref`, such as `#/$defs/item`, in a schema. */
export function targetOf(schema: unknown, ref: string): unknown {
  if (!ref.startsWith('#')) return undefined
  const pointer = unquoted(ref.slice(1))
  if (pointer && !pointer.startsWith('/')) {
    for (const [, part] of partsOf(schema)) if (part.$anchor === pointer) return part
    return undefined
  }
  let target = schema
  for (const token of pointer.split('/').slice(1)) {
    const key = token.replaceAll('~1', '/').replaceAll('~0', '~')
    const isKnown = typeof target === 'object' && target !== null && Object.hasOwn(target, key)
    if (!isKnown) return undefined
    target = (target as Schema)[key]
  }
  return target ?? undefined
}

/**
 * Return the name of the tool that a provider's error rejects, or ''.
 *
 * Providers write `tools[3]`, `tools.3.custom.name` or `Invalid schema for function 'name'`.
 */
export function refusedTool(error: unknown, names: readonly string[]): string {
  for (const cause of causesOf(error)) {
    const { message, responseBody = '' } = cause as Error & { responseBody?: string }
    const text = `${message}\n${responseBody}`
    const [, at] = /\btools?(?:\[|\.)(\d{1,4})\b/.exec(text) ?? []
    if (at) return names[Number(at)] ?? ''
    const [, quotedName = ''] = RegExp(`function '(${NAME})'`).exec(text) ?? []
    if (quotedName) return names.includes(quotedName) ? quotedName : ''
  }
  return ''
}

export function isObject(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function matches(pattern: string, text: string): boolean {
  return RegExp(`^${pattern}$`).test(text)
}

function unquoted(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
