// Files of a prompt: their limits, and their types by content.

import { readFile as readFileBytes, stat } from 'node:fs/promises'
import { basename, extname } from 'node:path'

import { AgentError, File, FileUrl, isBlank } from './contract.ts'
import type { CoreSettings } from './settings.ts'

type Limits = Pick<CoreSettings, 'maxFiles' | 'maxFileBytes'>

const DOCX = 'application/vnd.openxmlformats-officedocument.wordprocessingml.document'

/** The media types that a caller can send, with the names of their formats. */
export const FORMATS = {
  'image/png': 'png',
  'image/jpeg': 'jpeg',
  'image/gif': 'gif',
  'image/webp': 'webp',
  'application/pdf': 'pdf',
  [DOCX]: 'docx',
  'text/plain': 'txt',
  'text/csv': 'csv',
  'text/markdown': 'md',
} as const

export type MediaType = keyof typeof FORMATS

const ALL_TYPES = Object.keys(FORMATS) as MediaType[]

/** The types that all vendors accept. @public */
export const COMMON_TYPES: readonly string[] = ALL_TYPES.filter((type) => type !== DOCX)

// Anthropic and Bedrock reject images with a longer side.
const MAX_PIXELS = 8000
const PDF_MARK = '%PDF-'
const PDF_MARK_PLACE = 1024 // PDF readers look for the mark in these first bytes
const ZIP_END = 'PK\x05\x06'
const ZIP_END_PLACE = 22 + 65_535 // the end record and its comment
const TEXT_EXTENSIONS = new Map([
  ['.csv', 'text/csv'],
  ['.md', 'text/markdown'],
])

/**
 * Check the files of a prompt, by their content; skip files that are not yet fetched.
 *
 * `accepted` are the media types that the model accepts. Throws AgentError: `payload_too_large`
 * above MAX_FILES or MAX_FILE_BYTES, `unsupported_file`.
 */
export function checkFiles(
  files: readonly File[],
  accepted: readonly string[],
  limits: Limits,
): void {
  checkCount(files.length, limits)
  for (const file of files) {
    if (!(file instanceof FileUrl)) checkFile(file, accepted, limits)
  }
}

function checkFile(file: File, accepted: readonly string[], limits: Limits): void {
  const { data, label, mediaType } = file
  if (data.length > limits.maxFileBytes) throw tooLarge(label, limits)
  if (!isMediaType(mediaType)) {
    throw unsupported(`${label} has the type ${mediaType.slice(0, 100)}`, accepted)
  }
  const found = typeOf(data)
  const isText = found === 'text/plain' && mediaType.startsWith('text/')
  if (found !== mediaType && !isText) {
    throw unsupported(`${label} contains ${found || 'unknown data'}, not ${mediaType}`, accepted)
  }
  if (!accepted.includes(mediaType)) {
    throw unsupported(`The model does not accept ${mediaType}`, accepted)
  }
  if (file.isImage) checkImage(file)
}

function isMediaType(text: string): text is MediaType {
  return Object.hasOwn(FORMATS, text)
}

function checkImage({ data, label }: File): void {
  const [width, height] = sizeOf(data)
  if (!width || !height) throw new AgentError('unsupported_file', `${label} is a damaged image.`)
  if (Math.max(width, height) > MAX_PIXELS) {
    const what = `${label} has ${width} x ${height} pixels`
    throw new AgentError('unsupported_file', `${what}: send at most ${MAX_PIXELS} per side.`)
  }
  const bytes = bufferOf(data)
  const isPdf = bytes.subarray(0, PDF_MARK_PLACE).includes(PDF_MARK)
  if (isPdf || bytes.subarray(-ZIP_END_PLACE).includes(ZIP_END)) {
    throw new AgentError('unsupported_file', `${label} is an image and another file.`)
  }
}

/** Return the error for a type that is not accepted. */
export function unsupported(reason: string, accepted: readonly string[]): AgentError {
  const advice = accepted.length > 0 ? `Send one of: ${accepted.join(', ')}.` : 'Send no files.'
  return new AgentError('unsupported_file', `${reason}. ${advice}`)
}

/**
 * Read the `files` of a request; `checkFiles` checks them. Throws AgentError.
 *
 * Those of a form are `File`s.
 */
export function readFiles(value: unknown, limits: Limits): File[] {
  if (!Array.isArray(value)) throw new AgentError('invalid_request', 'Send files as a list.')
  checkCount(value.length, limits)
  return value.map((item: unknown) => readFile(item, limits))
}

/** Throw `payload_too_large` for more than MAX_FILES files. */
export function checkCount(count: number, { maxFiles }: Limits): void {
  if (count <= maxFiles) return
  throw new AgentError('payload_too_large', `Send at most ${maxFiles} files with a prompt.`)
}

function readFile(item: unknown, limits: Limits): File {
  if (item instanceof File) return item
  const fields = Object(item) as Record<string, unknown>
  const isUrl = 'url' in fields
  const { media_type: mediaType = isUrl ? '' : undefined, name = '', data, url } = fields
  if (typeof mediaType === 'string' && typeof name === 'string') {
    if (typeof data === 'string' && !isUrl) return decodeFile(mediaType, data, name, limits)
    if (typeof url === 'string' && !('data' in fields)) {
      return new FileUrl(url, plainType(mediaType), name)
    }
  }
  const message =
    'Send each file as {media_type, name, data}, with its data in base64, or as {url}.'
  throw new AgentError('invalid_request', message)
}

/** Return a file from its base64. Throws AgentError. */
export function decodeFile(mediaType: string, data: string, name: string, limits: Limits): File {
  const type = plainType(mediaType)
  const bytes = Buffer.from(data, 'base64') // ignores characters that are not base64
  const file = new File(type, bytes, name)
  if (data.length > Math.ceil(limits.maxFileBytes / 3) * 4) throw tooLarge(file.label, limits)
  if (bytes.toString('base64') !== data) {
    throw new AgentError('invalid_request', `The data of ${file.label} is not base64.`)
  }
  return file
}

/** Return a media type in lower case, without parameters, such as the charset of browsers. */
export function plainType(mediaType: string): string {
  return mediaType.split(';')[0]!.trim().toLowerCase().toWellFormed()
}

/** Return the error for a file above MAX_FILE_BYTES. */
export function tooLarge(label: string, { maxFileBytes }: Limits): AgentError {
  return new AgentError('payload_too_large', `${label} is larger than ${maxFileBytes} bytes.`)
}

/**
 * Read a file of the user; its content and extension decide its type.
 *
 * Throws AgentError.
 */
export async function readPath(path: string, limits: Limits): Promise<File> {
  const name = basename(path)
  try {
    const found = await stat(path)
    if (!found.isFile()) throw unreadable(path, 'It is not a file')
    if (found.size > limits.maxFileBytes) throw tooLarge(name, limits)
    const data = await readFileBytes(path)
    const kind = typeOf(data) || 'application/octet-stream'
    const type = TEXT_EXTENSIONS.get(extname(path).toLowerCase())
    return new File(kind === 'text/plain' && type ? type : kind, data, name)
  } catch (error) {
    if (error instanceof AgentError) throw error
    const { code } = Object(error) as { code?: string }
    throw unreadable(path, code === 'ENOENT' ? 'There is no such file' : (code ?? 'It is invalid'))
  }
}

function unreadable(path: string, reason: string): AgentError {
  return new AgentError('invalid_request', `Cannot read ${path}: ${reason}.`)
}

/** Return the media type of the content, or ''. The type of any text is text/plain. */
export function typeOf(data: Uint8Array): MediaType | '' {
  const bytes = bufferOf(data)
  const start = bytes.toString('latin1', 0, 12)
  if (start.startsWith('\x89PNG\r\n\x1a\n')) return 'image/png'
  if (start.startsWith('\xff\xd8\xff')) return 'image/jpeg'
  if (/^GIF8[79]a/.test(start)) return 'image/gif'
  if (/^RIFF[^]{4}WEBP/.test(start)) return 'image/webp'
  if (start.startsWith(PDF_MARK)) return 'application/pdf'
  if (start.startsWith('PK\x03\x04')) {
    // The names of a zip file's entries are at its end.
    const place = bytes.lastIndexOf('word/document.xml')
    return place > 0 && place < bytes.lastIndexOf(ZIP_END) ? DOCX : ''
  }
  return isText(data) ? 'text/plain' : ''
}

function isText(data: Uint8Array): boolean {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data)
    // eslint-disable-next-line no-control-regex -- other files contain these characters
    return !isBlank(text) && !/[\x00-\x08\x0e-\x1f\x7f]/.test(text)
  } catch {
    return false
  }
}

/** Return the width and height of an image in pixels; an empty list if it is damaged. */
function sizeOf(data: Uint8Array): number[] {
  const bytes = bufferOf(data)
  try {
    switch (typeOf(data)) {
      case 'image/png':
        return [bytes.readUInt32BE(16), bytes.readUInt32BE(20)]
      case 'image/gif':
        return [bytes.readUInt16LE(6), bytes.readUInt16LE(8)]
      case 'image/webp':
        return sizeOfWebp(bytes)
      default:
        return sizeOfJpeg(bytes)
    }
  } catch {
    return [] // the file is too short
  }
}

function sizeOfWebp(bytes: Buffer): number[] {
  switch (bytes.toString('latin1', 12, 16)) {
    case 'VP8X':
      return [bytes.readUIntLE(24, 3) + 1, bytes.readUIntLE(27, 3) + 1]
    case 'VP8L': {
      const bits = bytes.readUInt32LE(21)
      return [(bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1]
    }
    case 'VP8 ':
      return [bytes.readUInt16LE(26) & 0x3fff, bytes.readUInt16LE(28) & 0x3fff]
    default:
      return []
  }
}

/** Return the size in the first frame header. */
function sizeOfJpeg(bytes: Buffer): number[] {
  let place = 2
  while (bytes[place] === 0xff) {
    const marker = bytes[place + 1] ?? 0
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)
    if (isFrame) return [bytes.readUInt16BE(place + 7), bytes.readUInt16BE(place + 5)]
    const isPadding = marker === 0xff
    place += isPadding ? 1 : 2 + bytes.readUInt16BE(place + 2)
  }
  return []
}

function bufferOf(data: Uint8Array): Buffer {
  return Buffer.from(data.buffer, data.byteOffset, data.byteLength)
}
