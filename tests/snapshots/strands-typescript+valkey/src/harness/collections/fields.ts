// What several models have in common: types of fields, and references to secrets.

import { z } from 'zod'

import type { Document, Findings } from './reader.ts'

/** A text that matches a pattern, all of it; `what` describes it. */
export function text(pattern: string, what: string) {
  return z.string().regex(new RegExp(`^(?:${pattern})$`), `Input should be ${what}`)
}

/** A whole number in a range. */
export function whole(lowest: number, highest: number) {
  const words = `Input should be a whole number from ${lowest} to ${highest}`
  return z.int(words).min(lowest, words).max(highest, words)
}

const ENV = 'env:[A-Za-z_][A-Za-z0-9_]{0,127}'
// The ARN of a secret or its path, which a URL, host:port and an ARN of something else are not.
const SECRET =
  '(?=arn:aws[a-z-]*:secretsmanager:|(?!env:|arn:|.*://|[^/#]+:[0-9]+$))[!-"$-~]{1,512}'
/** What the backends name: #key selects a field of a secret that is a JSON object. */
export const forms = {
  region: text('[a-z]{2,4}(-[a-z]{2,12}){1,3}-[0-9]{1,2}', 'an AWS region such as eu-west-1'),
  reference: text(`(${ENV}|${SECRET})(#[!-~]{1,128})?`, 'env:NAME, or the ARN or path of a secret'),
  address: (pattern: string, what: string) => text(`${ENV}|${pattern}`, `env:NAME, or ${what}`),
}

/** A secret that the field at `path` names; `accepts` refuses what is not as `expected`. */
export interface SecretRef {
  readonly reference: string
  readonly key: string | null
  readonly region: string | null
  readonly path: readonly string[]
  readonly expected?: string
  readonly accepts?: (value: string) => boolean
}

/** Report that a backend lacks the field with its address. */
export function* missingAddress(document: Document, name: string, status: string): Findings {
  const isDraft = status === 'draft'
  const hint = isDraft ? 'add it before the status leaves draft' : 'only a draft may omit it'
  const message = `backend.${name} is missing: ${hint}.`
  yield document.finding(isDraft ? 'AML-W201' : 'AML-E201', message, 'backend', name)
}
