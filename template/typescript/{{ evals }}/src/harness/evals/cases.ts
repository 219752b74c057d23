// Reads cases from the YAML files in evals/; evals/schema.json describes them.

import { globSync, readFileSync } from 'node:fs'

import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import { type Document, isNode, LineCounter, parseDocument } from 'yaml'

/** A tool call: an expectation, or a step of the offline model. */
export interface Step {
  readonly tool: string
  readonly input?: Record<string, unknown>
  /** A part of the tool's answer. */
  readonly answer?: string
}

/** An answer that replaces the code of a tool. */
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

/** A turn of a case. */
export interface CaseTurn {
  readonly prompt: string
  /** Files of the prompt, by their paths from evals/. */
  readonly files?: readonly string[]
  readonly offline?: readonly (string | Step)[]
  readonly expect?: Expect
}

/** The data of a case in its file. */
export interface CaseData {
  readonly name: string
  readonly actor?: string
  readonly real?: boolean
  readonly seconds?: number
  readonly tools?: Record<string, Stub[]>
  readonly turns: readonly CaseTurn[]
}

/** A case, the file and line of its start, and the errors that keep it from running. */
export interface Case {
  readonly name: string
  readonly place: string
  readonly data: Partial<CaseData>
  readonly errors: string[]
}

/** A turn of a stored session. */
export interface StoredTurn {
  readonly prompt: string
  readonly calls: { tool: string; input: unknown; answer: string; failed: boolean }[]
  reply: string
}

/** Return all cases, or only those with these names; invalid cases have errors. */
export function readCases(names: readonly string[], folder = 'evals'): Case[] {
  const schema = JSON.parse(readFileSync(`${folder}/schema.json`, 'utf8'))
  const validate = new Ajv2020({ allErrors: true, strict: false }).compile(schema)
  const casesByName = new Map<string, Case>()
  for (const path of globSync(`${folder}/*.{yaml,yml}`).toSorted()) {
    if (path.endsWith('promptfooconfig.yaml')) continue
    for (const item of read(path.replaceAll('\\', '/'), validate)) {
      const same = casesByName.get(item.name)
      const errors = same ? [`${item.place}: ${same.place} has the same name`] : item.errors
      const name = same ? item.place : item.name
      casesByName.set(name, { ...item, name, errors })
    }
  }
  const unknown = names.filter((name) => !casesByName.has(name))
  for (const name of unknown) {
    const errors = [`there is no case ${name} in ${folder}/*.yaml`]
    casesByName.set(name, { name, place: '', data: {}, errors })
  }
  return [...casesByName.values()].filter(({ name, errors }) => {
    // The name of an invalid case is unknown, so report invalid cases too.
    const isSuspect = unknown.length > 0 && errors.length > 0
    return names.length === 0 || names.includes(name) || isSuspect
  })
}

function read(path: string, validate: ValidateFunction): Case[] {
  const lines = new LineCounter()
  const invalid = (line: number, errors: string[]): Case => {
    return { name: `${path}:${line}`, place: `${path}:${line}`, data: {}, errors }
  }
  let document, data
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(readFileSync(path))
    document = parseDocument(text, { lineCounter: lines, prettyErrors: false })
    const [error] = document.errors
    if (error) {
      const { line } = lines.linePos(error.pos[0])
      return [invalid(line, [`${path}:${line}: ${error.message}`])]
    }
    data = document.toJS() as { cases: CaseData[] }
  } catch {
    return [invalid(1, [`${path}:1: the file is not YAML in UTF-8`])]
  }
  const errorsByCase = new Map<number, string[]>()
  validate(data)
  for (const { instancePath, message = '', params } of validate.errors ?? []) {
    const location = instancePath.split('/').slice(1)
    const index = location[0] === 'cases' && location.length > 1 ? Number(location[1]) : -1
    const line = lineOf(document, location, lines)
    const [value = ''] = Object.values(params).filter((param) => typeof param === 'string')
    const error = `${path}:${line}: it ${message}${message.includes(value) ? '' : `: ${value}`}`
    errorsByCase.set(index, [...(errorsByCase.get(index) ?? []), error])
  }
  const fileErrors = errorsByCase.get(-1)
  if (fileErrors) return [invalid(1, fileErrors)]
  return data.cases.map((caseData, index) => {
    const line = lineOf(document, ['cases', index], lines)
    const errors = errorsByCase.get(index)
    if (errors) return invalid(line, errors)
    return { name: caseData.name, place: `${path}:${line}`, data: caseData, errors: [] }
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
