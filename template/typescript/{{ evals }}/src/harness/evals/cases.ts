// Reads cases from the YAML files in evals/, which the JSON Schema there describes.

import { globSync, readFileSync } from 'node:fs'

import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import { type Document, isNode, LineCounter, parseDocument } from 'yaml'

/** A call of a tool, as it is expected or as the model makes it offline. */
export interface Step {
  readonly tool: string
  readonly input?: Record<string, unknown>
  /** What its answer contains. */
  readonly answer?: string
}

/** The answer of a tool. */
export interface Stub {
  readonly input?: Record<string, unknown>
  readonly answer?: unknown
  readonly error?: string
}

export interface Expect {
  readonly reply?: { contains?: string[]; lacks?: string[]; matches?: string; schema?: object }
  readonly tools?: readonly Step[]
  readonly never?: readonly string[]
  readonly outcome?: string
  readonly tokens?: number
  readonly seconds?: number
  readonly judge?: string
}

export interface Asked {
  readonly prompt: string
  readonly offline?: readonly (string | Step)[]
  readonly expect?: Expect
}

/** A case, as its file has it. */
export interface Declared {
  readonly name: string
  readonly actor?: string
  readonly real?: boolean
  readonly seconds?: number
  readonly tools?: Record<string, Stub[]>
  readonly turns: readonly Asked[]
}

/** A case, the place of its first line, and why it cannot run. */
export interface Case {
  readonly name: string
  readonly place: string
  readonly data: Partial<Declared>
  readonly errors: string[]
}

/** A turn of a stored session. */
export interface Stored {
  readonly prompt: string
  readonly calls: { tool: string; input: unknown; answer: string; failed: boolean }[]
  reply: string
}

/** Return the cases of all files, or those of these names, with their errors. */
export function readCases(names: readonly string[], folder = 'evals'): Case[] {
  const schema = JSON.parse(readFileSync(`${folder}/schema.json`, 'utf8'))
  const validate = new Ajv2020({ allErrors: true, strict: false }).compile(schema)
  const known = new Map<string, Case>()
  for (const path of globSync(`${folder}/*.{yaml,yml}`).toSorted()) {
    if (path.endsWith('promptfooconfig.yaml')) continue
    for (const found of read(path.replaceAll('\\', '/'), validate)) {
      const same = known.get(found.name)
      const errors = same ? [`${found.place}: ${same.place} has the same name`] : found.errors
      const name = same ? found.place : found.name
      known.set(name, { ...found, name, errors })
    }
  }
  const unknown = names.filter((name) => !known.has(name))
  for (const name of unknown) {
    const errors = [`there is no case ${name} in ${folder}/*.yaml`]
    known.set(name, { name, place: '', data: {}, errors })
  }
  return [...known.values()].filter(({ name, errors }) => {
    // A case that is not found may be a case with an error.
    const isSuspect = unknown.length > 0 && errors.length > 0
    return names.length === 0 || names.includes(name) || isSuspect
  })
}

function read(path: string, validate: ValidateFunction): Case[] {
  const lines = new LineCounter()
  const failed = (line: number, errors: string[]): Case => {
    return { name: `${path}:${line}`, place: `${path}:${line}`, data: {}, errors }
  }
  let document, data
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(readFileSync(path))
    document = parseDocument(text, { lineCounter: lines, prettyErrors: false })
    const [error] = document.errors
    if (error) {
      const { line } = lines.linePos(error.pos[0])
      return [failed(line, [`${path}:${line}: ${error.message}`])]
    }
    data = document.toJS() as { cases: Declared[] }
  } catch {
    return [failed(1, [`${path}:1: it is not YAML in UTF-8`])]
  }
  const found = new Map<number, string[]>()
  validate(data)
  for (const { instancePath, message = '', params } of validate.errors ?? []) {
    const where = instancePath.split('/').slice(1)
    const index = where[0] === 'cases' && where.length > 1 ? Number(where[1]) : -1
    const line = lineOf(document, where, lines)
    const [value = ''] = Object.values(params).filter((one) => typeof one === 'string')
    const what = `${path}:${line}: it ${message}${message.includes(value) ? '' : `: ${value}`}`
    found.set(index, [...(found.get(index) ?? []), what])
  }
  const ofFile = found.get(-1)
  if (ofFile) return [failed(1, ofFile)]
  return data.cases.map((declared, index) => {
    const line = lineOf(document, ['cases', index], lines)
    const errors = found.get(index)
    if (errors) return failed(line, errors)
    return { name: declared.name, place: `${path}:${line}`, data: declared, errors: [] }
  })
}

/** Return the line of a value, or of the nearest value around it that has a position. */
function lineOf(
  document: Document,
  path: readonly (string | number)[],
  lines: LineCounter,
): number {
  for (let length = path.length; length > 0; length--) {
    const node = document.getIn(path.slice(0, length), true)
    if (isNode(node) && node.range) return lines.linePos(node.range[0]).line
  }
  return 1
}
