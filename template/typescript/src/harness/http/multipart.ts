// Reads forms: bodies of the type multipart/form-data (RFC 7578).

import {
  MultipartParseError,
  MultipartParser,
  type MultipartPart,
} from '@remix-run/multipart-parser'

import { AgentError, File } from '../contract.ts'
import { plainType } from '../files.ts'
import { escapeInvisible } from '../log.ts'
import type { CoreSettings } from '../settings.ts'

export const FORM_TYPE = 'multipart/form-data'
const BOUNDARY = /^[ -~]{1,70}$/ // RFC 2046, 5.1.1
const MAX_FIELDS = 32 // of a form, in addition to its files
const PARAMETER = /;\s*([\w*]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;"]*))/g

/** The values of the fields of a form, and its files. */
interface Form {
  readonly fields: ReadonlyMap<string, Uint8Array>
  readonly files: readonly File[]
}

/** Whether a Content-Type is that of a form. */
export function isForm(contentType: string): boolean {
  return plainType(contentType) === FORM_TYPE
}

/** Return the values of the fields of a form, and its files. Throws AgentError. */
export function readForm(
  body: Uint8Array,
  contentType: string,
  { maxFiles }: Pick<CoreSettings, 'maxFiles'>,
): Form {
  const boundary = parametersOf(contentType).get('boundary') ?? ''
  if (!BOUNDARY.test(boundary)) {
    const message = 'Send the boundary of the form, 1 to 70 characters, in its Content-Type.'
    throw new AgentError('invalid_request', message)
  }
  const fields = new Map<string, Uint8Array>()
  const files: File[] = []
  for (const part of partsOf(body, boundary, maxFiles + MAX_FIELDS)) {
    const { name, fileName } = namesOf(part)
    if (fileName === undefined) {
      if (fields.has(name)) throw repeated(name)
      fields.set(name, part.bytes)
    } else if (name === 'files') {
      const sentType = part.headers['content-type'] || 'text/plain'
      files.push(new File(plainType(sentType), part.bytes, fileName))
    } else {
      const message = `Send a file in the field "files", not ${label(name)}.`
      throw new AgentError('invalid_request', message)
    }
  }
  if (files.length > 0 && fields.has('files')) throw repeated('files')
  return { fields, files }
}

/** Return the name of a field for messages. */
export function label(name: string): string {
  return `"${escapeInvisible([...name].slice(0, 100).join(''))}"`
}

/** Yield the parts of a form; their headers are valid. Throws AgentError. */
function* partsOf(body: Uint8Array, boundary: string, maxParts: number): Generator<MultipartPart> {
  // MAX_BODY_BYTES limits the sizes.
  const sizes = { maxFileSize: Infinity, maxTotalSize: Infinity, maxParts: Infinity }
  const parser = new MultipartParser(boundary, sizes)
  let count = 0
  try {
    for (const part of parser.write(body)) {
      count += 1
      if (count > maxParts) {
        throw new AgentError('invalid_request', `Send at most ${maxParts} parts in a form.`)
      }
      yield part
    }
    parser.finish()
  } catch (error) {
    if (!(error instanceof MultipartParseError)) throw error
    const message =
      'The form is invalid or incomplete: send multipart/form-data as RFC 7578 defines it.'
    throw new AgentError('invalid_request', message)
  }
}

/** Return the names of a part's field and of its file. Throws AgentError. */
function namesOf(part: MultipartPart): { name: string; fileName: string | undefined } {
  try {
    const parameters = parametersOf(part.headers['content-disposition'] ?? '')
    const name = parameters.get('name')
    if (name !== undefined) return { name, fileName: parameters.get('filename') }
  } catch {
    // The headers are not UTF-8.
  }
  const message = 'Each part of a form needs a Content-Disposition with a name in UTF-8.'
  throw new AgentError('invalid_request', message)
}

/** Return the parameters of a header. */
function parametersOf(header: string): Map<string, string> {
  const matches = header.matchAll(PARAMETER)
  const unquote = (text: string) => text.replace(/\\(["\\])/g, '$1')
  return new Map(
    Array.from(matches, ([, name = '', quoted, plain = '']) => [
      name.toLowerCase(),
      quoted === undefined ? plain.trim() : unquote(quoted),
    ]),
  )
}

function repeated(name: string): AgentError {
  return new AgentError('invalid_request', `Send the field ${label(name)} only once.`)
}
