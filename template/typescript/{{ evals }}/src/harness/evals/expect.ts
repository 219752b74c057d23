// Compares a turn with its expectations.

import { isDeepStrictEqual } from 'node:util'

import { Ajv2020 } from 'ajv/dist/2020.js'

import type { Expect, Step } from './cases.ts'

const LONGEST = 200 // characters of a value in a line

/** A tool call and its answer. */
export interface SeenCall {
  readonly tool: string
  readonly input: unknown
  answer?: string
  failed?: boolean
}

/** The record of a turn. */
export interface Seen {
  readonly prompt: string
  readonly calls: readonly SeenCall[]
  readonly reply: string
  readonly outcome: string
  readonly detail: string
  tokens: number
  readonly seconds: number
  judge?: string
}

/** Return in which ways a turn is not as expected, a line each. */
export function failuresOf(seen: Seen, expect: Expect): string[] {
  const { reply } = seen
  const { contains = [], lacks = [], matches, schema } = expect.reply ?? {}
  const { outcome = 'committed' } = expect
  const found: string[] = []
  if (seen.outcome !== outcome) {
    found.push(`the turn ended as ${seen.outcome}, not ${outcome}${seen.detail}`)
  }
  for (const text of contains) {
    if (!reply.includes(text)) found.push(`the reply lacks ${show(text)}`)
  }
  for (const text of lacks) {
    if (reply.includes(text)) found.push(`the reply contains ${show(text)}`)
  }
  if (matches !== undefined) {
    try {
      const isMatch = new RegExp(matches, 'u').test(reply)
      if (!isMatch) found.push(`the reply does not match ${show(matches)}`)
    } catch (error) {
      found.push(`${show(matches)} is no regular expression: ${(error as Error).message}`)
    }
  }
  if (schema) found.push(...notAsSchema(reply, schema))
  if (expect.tools) found.push(...otherCalls(seen.calls, expect.tools))
  const called = new Set(seen.calls.map(({ tool }) => tool))
  for (const name of expect.never ?? []) if (called.has(name)) found.push(`${name} was called`)
  for (const limit of ['tokens', 'seconds'] as const) {
    const most = expect[limit]
    if (most !== undefined && seen[limit] > most) {
      found.push(`it took ${seen[limit]} ${limit}, more than ${most}`)
    }
  }
  return found
}

/** Whether arguments have these values; others may be any. */
export function fits(wanted: Record<string, unknown>, given: unknown): boolean {
  const values = Object(given)
  return Object.entries(wanted).every(([name, value]) => isDeepStrictEqual(values[name], value))
}

function otherCalls(calls: readonly SeenCall[], wanted: readonly Step[]): string[] {
  const areSame =
    calls.length === wanted.length && calls.every((call, at) => isSame(call, wanted[at]!))
  return areSame ? [] : [`it called ${inWords(calls)}, not ${inWords(wanted)}`]
}

function isSame(call: SeenCall, { tool, input = {}, answer = '' }: Step): boolean {
  return call.tool === tool && fits(input, call.input) && (call.answer ?? '').includes(answer)
}

function inWords(calls: readonly Pick<SeenCall, 'tool' | 'answer'>[] | readonly Step[]): string {
  const shown = calls.map(({ tool, input = {}, answer }: Step) => {
    return `${tool} ${JSON.stringify(input)}${answer === undefined ? '' : ` -> ${answer}`}`
  })
  return shown.join(', ').slice(0, LONGEST) || 'nothing'
}

function notAsSchema(reply: string, schema: object): string[] {
  let validate, data
  try {
    validate = new Ajv2020({ allErrors: true, strict: false }).compile(schema)
  } catch (error) {
    return [`the schema is invalid: ${(error as Error).message.slice(0, LONGEST)}`]
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

function show(value: unknown): string {
  return JSON.stringify(value).slice(0, LONGEST)
}
