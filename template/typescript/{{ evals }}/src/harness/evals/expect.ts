// Compares a turn with its expectations.

import { isDeepStrictEqual } from 'node:util'

import { Ajv2020 } from 'ajv/dist/2020.js'

import type { Expect, Step } from './cases.ts'

const MAX_LENGTH = 200 // characters of a quoted value

/** A tool call and its answer. */
export interface ToolCallRecord {
  readonly tool: string
  readonly input: unknown
  answer?: string
  failed?: boolean
}

/** The record of a turn. */
export interface TurnRecord {
  readonly prompt: string
  readonly calls: readonly ToolCallRecord[]
  readonly reply: string
  readonly outcome: string
  readonly detail: string
  tokens: number
  readonly seconds: number
  judge?: string
}

/** Compare the record of a turn with its expectations; return one line per difference. */
export function failuresOf(record: TurnRecord, expect: Expect): string[] {
  const { reply } = record
  const { contains = [], lacks = [], matches, schema } = expect.reply ?? {}
  const { outcome = 'committed' } = expect
  const failures: string[] = []
  if (record.outcome !== outcome) {
    failures.push(`the turn ended as ${record.outcome}, not ${outcome}${record.detail}`)
  }
  for (const text of contains) {
    if (!reply.includes(text)) failures.push(`the reply lacks ${quote(text)}`)
  }
  for (const text of lacks) {
    if (reply.includes(text)) failures.push(`the reply contains ${quote(text)}`)
  }
  if (matches !== undefined) {
    try {
      const isMatch = new RegExp(matches, 'u').test(reply)
      if (!isMatch) failures.push(`the reply does not match ${quote(matches)}`)
    } catch (error) {
      failures.push(`${quote(matches)} is not a regular expression: ${(error as Error).message}`)
    }
  }
  if (schema) failures.push(...schemaErrors(reply, schema))
  if (expect.tools) failures.push(...compareCalls(record.calls, expect.tools))
  const called = new Set(record.calls.map(({ tool }) => tool))
  for (const name of expect.never ?? []) if (called.has(name)) failures.push(`${name} was called`)
  for (const limit of ['tokens', 'seconds'] as const) {
    const maximum = expect[limit]
    if (maximum !== undefined && record[limit] > maximum) {
      failures.push(`it took ${record[limit]} ${limit}, more than ${maximum}`)
    }
  }
  return failures
}

/** Return whether the arguments include the expected values. */
export function fits(expected: Record<string, unknown>, input: unknown): boolean {
  const values = Object(input)
  return Object.entries(expected).every(([name, value]) => isDeepStrictEqual(values[name], value))
}

function compareCalls(calls: readonly ToolCallRecord[], expected: readonly Step[]): string[] {
  const areSame =
    calls.length === expected.length && calls.every((call, at) => isSame(call, expected[at]!))
  return areSame ? [] : [`it called ${describe(calls)}, not ${describe(expected)}`]
}

function isSame(call: ToolCallRecord, { tool, input = {}, answer = '' }: Step): boolean {
  return call.tool === tool && fits(input, call.input) && (call.answer ?? '').includes(answer)
}

function describe(
  calls: readonly Pick<ToolCallRecord, 'tool' | 'answer'>[] | readonly Step[],
): string {
  const descriptions = calls.map(({ tool, input = {}, answer }: Step) => {
    return `${tool} ${JSON.stringify(input)}${answer === undefined ? '' : ` -> ${answer}`}`
  })
  return descriptions.join(', ').slice(0, MAX_LENGTH) || 'nothing'
}

function schemaErrors(reply: string, schema: object): string[] {
  let validate, data
  try {
    validate = new Ajv2020({ allErrors: true, strict: false }).compile(schema)
  } catch (error) {
    return [`the schema is invalid: ${(error as Error).message.slice(0, MAX_LENGTH)}`]
  }
  try {
    data = JSON.parse(reply)
  } catch {
    return ['the reply is not JSON']
  }
  validate(data)
  return (validate.errors ?? []).slice(0, 3).map(({ instancePath, message }) => {
    return `the reply violates the schema: ${instancePath} ${message}`
  })
}

function quote(value: unknown): string {
  return JSON.stringify(value).slice(0, MAX_LENGTH)
}
