// Field types that several models share, and references to secrets.

import { z } from 'zod'

import type { Document, Findings } from './reader.ts'

/** Return the schema of a string that matches a pattern; `description` is for the error. */
export function text(pattern: string, description: string) {
  return z.string().regex(new RegExp(`^(?:${pattern})$`), `Input should be ${description}`)
}

/** Return the schema of a whole number in a range. */
export function whole(lowest: number, highest: number) {
  const message = `Input should be a whole number from ${lowest} to ${highest}`
  return z.int(message).min(lowest, message).max(highest, message)
}

const ENV = 'env:[A-Za-z_][A-Za-z0-9_]{0,127}'
// The ARN or path of a secret, but not a URL, host:port or the ARN of another resource.
const SECRET =
  '(?=arn:aws[a-z-]*:secretsmanager:|(?!env:|arn:|.*://|[^/#]+:[0-9]+$))[!-"$-~]{1,512}'
/** Schemas of backend fields. #key selects a field of a JSON secret. */
export const forms = {
  region: text('[a-z]{2,4}(-[a-z]{2,12}){1,3}-[0-9]{1,2}', 'an AWS region such as eu-west-1'),
  reference: text(`(${ENV}|${SECRET})(#[!-~]{1,128})?`, 'env:NAME, or the ARN or path of a secret'),
  address: (pattern: string, description: string) =>
    text(`${ENV}|${pattern}`, `env:NAME, or ${description}`),
}

/**
 * A reference to a secret, in the field at `path`.
 *
 * `accepts` is false for an invalid value; `expected` describes valid values in the error.
 */
export interface SecretRef {
  readonly reference: string
  readonly key: string | null
  readonly region: string | null
  readonly path: readonly string[]
  readonly expected?: string
  readonly accepts?: (value: string) => boolean
}

/** Report that the address field of a backend is missing. */
export function* missingAddress(document: Document, name: string, status: string): Findings {
  const isDraft = status === 'draft'
  const hint = isDraft ? 'add it before the status leaves draft' : 'only a draft may omit it'
  const message = `backend.${name} is missing: ${hint}.`
  yield document.finding(isDraft ? 'AML-W201' : 'AML-E201', message, 'backend', name)
}
