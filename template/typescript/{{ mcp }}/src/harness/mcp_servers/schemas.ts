// Repairs the declaration of a tool, so that every model provider accepts it.
//
// Servers may declare schemas that only some clients accept. One such tool makes a provider reject
// the request of the whole turn.

import { createHash } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'

import { isObject, LISTS, MAPS, matches, MAX_DESCRIPTION_CHARS, NAME } from '../tool_schemas.ts'
import { partsOf, PROPERTY_KEY, type Schema, SCHEMAS, targetOf } from '../tool_schemas.ts'

const MAX_DECLARATION_CHARS = 20_000 // description and schema of a tool
const MAX_DEPTH = 60
const MAX_BRANCHES = 1000 // at the top level
const MAX_NOTE_CHARS = 400
const TYPES = ['array', 'boolean', 'integer', 'null', 'number', 'object', 'string']
// Type names that servers write instead; '' means any type.
const ALIASES = new Map([
  ['None', 'null'],
  ['any', ''],
  ['bool', 'boolean'],
  ['dict', 'object'],
  ['double', 'number'],
  ['float', 'number'],
  ['int', 'integer'],
  ['list', 'array'],
  ['map', 'object'],
  ['str', 'string'],
  ['text', 'string'],
  ['tuple', 'array'],
])
const DROPPED = ['$schema', '$id', '$anchor', '$comment']
const COMBINATORS = ['allOf', 'anyOf', 'oneOf']
const NUMBERS = new Set([
  'maxItems',
  'maxLength',
  'maxProperties',
  'maximum',
  'minItems',
  'minLength',
  'minProperties',
  'minimum',
  'multipleOf',
])

/** No provider would accept the tool; the message is the reason. */
export class NotRepairableError extends Error {}

/** A declaration that providers accept; it can restore the server's property names. */
export class RepairedTool {
  readonly description: string
  readonly schema: Schema
  readonly #root: unknown
  readonly #keys = new Map<string, string>() // new property names, by the server's names
  readonly #names = new Map<string, string>() // the server's names, by new names
  readonly #notes: string[] = []
  readonly #addedDefinitions = new Map<string, Schema>()
  readonly #locations = new Map<string, string>()
  #branches = 0

  /** Throws NotRepairableError. */
  constructor(description: string, schema: unknown) {
    try {
      const declared = schema === undefined || schema === null || schema === true ? {} : schema
      this.#root = JSON.parse(checkSize(declared), (_, value) =>
        typeof value === 'string' ? value.toWellFormed() : value,
      )
      this.schema = this.#repair()
    } catch (error) {
      if (!(error instanceof RangeError)) throw error
      throw new NotRepairableError('its schema is nested too deeply')
    }
    const note = this.#notes.join(' ').slice(0, MAX_NOTE_CHARS)
    this.description = shorten(description.toWellFormed(), note)
    checkSize([this.description, this.schema])
    for (const [old, name] of this.#keys) this.#names.set(name, old)
  }

  /** Return the arguments of a call with the names that the server declared. */
  restore(args: unknown): unknown {
    return this.#names.size > 0 ? this.#restore(args, [this.schema]) : args
  }

  #repair(): Schema {
    if (!isObject(this.#root)) throw new NotRepairableError('its schema is not an object')
    this.#rename()
    const merged = this.#merge(this.#root, [])
    if (Object.hasOwn(merged, 'type') && !isObjectType(merged.type)) {
      throw new NotRepairableError('its schema is not of type object')
    }
    // Every `$ref` points into the root, even in a part with its own definitions.
    const { $defs, definitions } = this.#root
    const shared = {
      ...(isObject($defs) && { $defs }),
      ...(isObject(definitions) && { definitions }),
    }
    const schema = this.#clean({ ...merged, ...shared, type: 'object' }, 0)
    if (this.#addedDefinitions.size === 0) return schema
    return {
      ...schema,
      $defs: { ...mapOf(schema.$defs), ...Object.fromEntries(this.#addedDefinitions) },
    }
  }

  /** Rename properties whose names providers reject. */
  #rename(): void {
    const parts = [...partsOf(this.#root)]
    const keys = parts.flatMap(([, { properties }]) => Object.keys(mapOf(properties)))
    const taken = new Set(keys)
    for (const key of keys) {
      if (this.#keys.has(key) || matches(PROPERTY_KEY, key)) continue
      let name = key.replace(/[^a-zA-Z0-9_.-]/gu, '_') || '_'
      if (name.length > 64) name = withHash(name, key)
      while (taken.has(name)) name = withHash(name, `${key}${name}`)
      taken.add(name)
      this.#keys.set(key, name)
    }
  }

  /** Return the top level of a schema without `$ref` and combinators. */
  #merge(part: unknown, path: string[]): Schema {
    this.#branches++
    if (this.#branches > MAX_BRANCHES || path.length > MAX_DEPTH) {
      throw new NotRepairableError('its schema is nested too deeply')
    }
    if (!isObject(part)) return {}
    const { $ref: ref, ...rest } = part
    const base = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== null))
    let merged = base
    if (typeof ref === 'string' && !path.includes(ref)) {
      merged = join(this.#merge(targetOf(this.#root, ref), [...path, ref]), base)
    }
    for (const branch of listOf(pop(merged, 'allOf'))) {
      merged = join(merged, this.#merge(branch, [...path, 'allOf']))
    }
    for (const keyword of ['anyOf', 'oneOf']) {
      const branches = listOf(pop(merged, keyword)).map((branch) => {
        return this.#merge(branch, [...path, keyword])
      })
      const objects = branches.filter(({ type = 'object' }) => isObjectType(type))
      if (branches.length > 0 && objects.length === 0) {
        throw new NotRepairableError('its schema is not of type object')
      }
      if (objects.length > 0) merged = this.#withAlternatives(merged, objects)
    }
    for (const branch of [pop(merged, 'then'), pop(merged, 'else')]) {
      const { properties } = this.#merge(branch, [...path, 'then'])
      merged = join(merged, { properties: mapOf(properties) })
    }
    for (const key of ['const', 'enum', 'if', 'not']) pop(merged, key)
    return merged
  }

  /** Return an object with the properties of all branches; note the required combinations. */
  #withAlternatives(base: Schema, branches: Schema[]): Schema {
    const properties = new Map<string, unknown[]>()
    for (const branch of branches) {
      for (const [key, value] of Object.entries(mapOf(branch.properties))) {
        const values = properties.get(key) ?? []
        if (!values.some((known) => isDeepStrictEqual(known, value))) values.push(value)
        properties.set(key, values)
      }
    }
    const baseProperties = mapOf(base.properties)
    const added = [...properties]
      .filter(([key]) => !Object.hasOwn(baseProperties, key))
      .map(([key, values]) => [key, values.length === 1 ? values[0] : { anyOf: values }] as const)
    const required = stringsOf(base.required)
    const alternatives: string[][] = []
    for (const branch of branches) {
      const needed = stringsOf(branch.required).filter((key) => !required.includes(key))
      if (!alternatives.some((known) => isDeepStrictEqual(known, needed))) alternatives.push(needed)
    }
    if (alternatives.length > 1) {
      const groups = alternatives.map((keys) => {
        return keys.map((key) => this.#keys.get(key) ?? key).join(', ') || 'none'
      })
      this.#notes.push(`Arguments that go together: ${groups.join('; or ')}.`)
    }
    const [first = []] = alternatives
    const common = first.filter((key) => alternatives.every((keys) => keys.includes(key)))
    const allRequired = [...required, ...common]
    const merged: Schema = {
      ...base,
      properties: Object.fromEntries([...Object.entries(baseProperties), ...added]),
      ...(allRequired.length > 0 && { required: allRequired }),
    }
    if (added.length > 0) delete merged.additionalProperties
    return merged
  }

  /** Return a repaired part of a schema, with missing keywords added. */
  #clean(part: unknown, depth: number): Schema {
    if (depth > MAX_DEPTH) throw new NotRepairableError('its schema is nested too deeply')
    if (part === false) return { not: {} }
    if (typeof part === 'string') {
      const type = ALIASES.get(part) ?? part
      return TYPES.includes(type) ? { type } : {}
    }
    if (!isObject(part)) return {}
    const entries = Object.entries(part).flatMap(([key, value]) => {
      const isKept = value !== null || key === 'const' || key === 'default'
      return isKept && !DROPPED.includes(key) ? this.#keyword(key, value, depth + 1) : []
    })
    const cleaned: Schema = Object.fromEntries(entries)
    limitExclusively(cleaned)
    this.#complete(cleaned, part, depth + 1)
    return cleaned
  }

  /** Return a keyword with its repaired value, or nothing if it is dropped. */
  #keyword(key: string, value: unknown, depth: number): [string, unknown][] {
    if (key === '$ref') {
      const place = typeof value === 'string' ? this.#locate(value, depth) : ''
      return place ? [[key, place]] : []
    }
    if (key === 'type') return typeOf(value)
    if (key === 'properties') {
      const inner = Object.entries(mapOf(value)).map(([name, each]) => {
        return [this.#keys.get(name) ?? name, this.#clean(each, depth)]
      })
      return [[key, Object.fromEntries(inner)]]
    }
    if (key === 'required') {
      const names = stringsOf(value).map((name) => this.#keys.get(name) ?? name)
      return Array.isArray(value) ? [[key, [...new Set(names)]]] : []
    }
    if (MAPS.includes(key)) {
      const inner = Object.entries(mapOf(value)).map(([name, each]) => {
        return [name, this.#clean(each, depth)]
      })
      return isObject(value) ? [[key, Object.fromEntries(inner)]] : []
    }
    if (['items', 'additionalItems', 'prefixItems'].includes(key)) return [] // see `#complete`
    if (LISTS.includes(key)) {
      const branches = listOf(value).map((branch) => this.#clean(branch, depth))
      return branches.length > 0 ? [[key, branches]] : []
    }
    if (SCHEMAS.includes(key)) {
      return [[key, typeof value === 'boolean' ? value : this.#clean(value, depth)]]
    }
    if (key === 'enum') return listOf(value).length > 0 ? [[key, value]] : []
    const isText = key === 'description' || key === 'title'
    if (isText && typeof value !== 'string') return []
    if (NUMBERS.has(key) && typeof value !== 'number') return []
    return [[key, value]]
  }

  /** Add keywords that objects and arrays need; convert a tuple of draft 07 to prefixItems. */
  #complete(cleaned: Schema, part: Schema, depth: number): void {
    const isUntyped = !Object.hasOwn(cleaned, 'type') && !Object.hasOwn(cleaned, '$ref')
    if (isUntyped && Object.hasOwn(cleaned, 'properties')) cleaned.type = 'object'
    const types = [cleaned.type].flat()
    if (types.includes('object')) cleaned.properties ??= {}
    let first = part.prefixItems
    let items = part.items ?? undefined
    if (Array.isArray(items)) {
      first = items
      items = part.additionalItems ?? undefined
    }
    const hasFirst = listOf(first).length > 0
    if (!types.includes('array') && items === undefined && !hasFirst) return
    if (hasFirst) {
      cleaned.prefixItems = listOf(first).map((item) => this.#clean(item, depth))
      if (items === false) {
        const maximum = typeof cleaned.maxItems === 'number' ? cleaned.maxItems : Infinity
        cleaned.maxItems = Math.min(maximum, listOf(first).length)
      }
    }
    cleaned.items = typeof items === 'boolean' ? {} : this.#clean(items, depth)
  }

  /** Return the target of a `$ref` in the repaired schema, or '' if it has none. */
  #locate(ref: string, depth: number): string {
    const target = targetOf(this.#root, ref)
    if (target === undefined) return ''
    const isDefinition = /^#\/(\$defs|definitions)\/[^/]*$/.test(ref)
    if (ref === '#' || isDefinition) return ref
    const known = this.#locations.get(ref)
    if (known) return known
    let name = `ref_${this.#locations.size + 1}`
    while (Object.hasOwn(mapOf((this.#root as Schema).$defs), name)) name += '_'
    const place = `#/$defs/${name}`
    this.#locations.set(ref, place)
    this.#addedDefinitions.set(name, {})
    this.#addedDefinitions.set(name, this.#clean(target, depth))
    return place
  }

  #restore(value: unknown, parts: unknown[]): unknown {
    const known = [...this.#alternatives(parts, new Set())]
    if (Array.isArray(value)) {
      return value.map((inner, at) => {
        const places = known.map(({ prefixItems, items }) => listOf(prefixItems)[at] ?? items)
        return this.#restore(inner, places)
      })
    }
    if (!isObject(value)) return value
    const entries = Object.entries(value).map(([key, inner]) => {
      const declared = known.flatMap(({ properties }) => {
        return Object.hasOwn(mapOf(properties), key) ? [mapOf(properties)[key]] : []
      })
      if (declared.length > 0) return [this.#names.get(key) ?? key, this.#restore(inner, declared)]
      const additional = known.flatMap(({ additionalProperties, patternProperties }) => {
        return [additionalProperties, ...Object.values(mapOf(patternProperties))]
      })
      return [key, this.#restore(inner, additional)]
    })
    return Object.fromEntries(entries)
  }

  /** Return the schemas that apply to a value, without duplicates. */
  #alternatives(parts: unknown[], known: Set<Schema>): Set<Schema> {
    for (const part of parts) {
      if (!isObject(part) || known.has(part)) continue
      known.add(part)
      const inner = [part.then, part.else, ...COMBINATORS.flatMap((key) => listOf(part[key]))]
      if (typeof part.$ref === 'string') inner.push(targetOf(this.schema, part.$ref))
      this.#alternatives(inner, known)
    }
    return known
  }
}

/** Return a name that every provider accepts. */
export function validName(name: string): string {
  const valid = name.replace(/[^A-Za-z0-9_-]/gu, '_')
  return matches(NAME, valid) ? valid : withHash(valid, name)
}

/** Return a name of at most 64 characters, made unique by a hash of the original. */
export function withHash(name: string, original: string): string {
  const digest = createHash('sha256').update(original).digest('hex')
  return `${name.slice(0, 55)}_${digest.slice(0, 8)}`
}

function checkSize(declared: unknown): string {
  const text = JSON.stringify(declared)
  if (text.length > MAX_DECLARATION_CHARS) {
    throw new NotRepairableError('its description and schema are too long')
  }
  return text
}

function shorten(description: string, note: string): string {
  const room = note ? MAX_DESCRIPTION_CHARS - note.length - 1 : MAX_DESCRIPTION_CHARS
  const characters = [...description]
  const start = characters.slice(0, room - 1).join('')
  const text = characters.length > room ? `${start.trimEnd()}…` : description
  return `${text}\n${note}`.trim()
}

/** Merge two object schemas; a property of both must satisfy both. */
function join(left: Schema, right: Schema): Schema {
  const properties = new Map(Object.entries(mapOf(left.properties)))
  for (const [key, value] of Object.entries(mapOf(right.properties))) {
    const known = properties.has(key) ? properties.get(key) : value
    const isSame = isDeepStrictEqual(known, value)
    properties.set(key, isSame ? value : { allOf: [known, value] })
  }
  const required = [...new Set([...stringsOf(left.required), ...stringsOf(right.required)])]
  const merged = { ...left }
  for (const [key, value] of Object.entries(right)) {
    if (!Object.hasOwn(merged, key)) merged[key] = value
  }
  if (properties.size > 0) merged.properties = Object.fromEntries(properties)
  if (required.length > 0) merged.required = required
  return merged
}

/** Convert the booleans of draft 04: `exclusiveMinimum: true` beside `minimum`. */
function limitExclusively(cleaned: Schema): void {
  for (const [exclusive, limit] of [
    ['exclusiveMinimum', 'minimum'],
    ['exclusiveMaximum', 'maximum'],
  ] as const) {
    if (typeof cleaned[exclusive] !== 'boolean') continue
    const isExclusive = pop(cleaned, exclusive)
    if (isExclusive && Object.hasOwn(cleaned, limit)) cleaned[exclusive] = pop(cleaned, limit)
  }
}

function typeOf(value: unknown): [string, unknown][] {
  const known: string[] = []
  for (const type of Array.isArray(value) ? value : [value]) {
    const name = typeof type === 'string' ? (ALIASES.get(type) ?? type) : ''
    if (name === '') return []
    if (!TYPES.includes(name)) throw new NotRepairableError('its schema is not valid')
    if (!known.includes(name)) known.push(name)
  }
  if (known.length === 0) return []
  return [['type', Array.isArray(value) ? known : known[0]]]
}

function isObjectType(value: unknown): boolean {
  const types: unknown[] = [value].flat()
  return types.some((type) => {
    return typeof type === 'string' && (ALIASES.get(type) ?? type) === 'object'
  })
}

/** Remove a key and return its value. */
function pop(schema: Schema, key: string): unknown {
  const value = schema[key]
  delete schema[key]
  return value
}

function mapOf(value: unknown): Schema {
  return isObject(value) ? value : {}
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : []
}

function stringsOf(value: unknown): string[] {
  return listOf(value).filter((item) => typeof item === 'string')
}
