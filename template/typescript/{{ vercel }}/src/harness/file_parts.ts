// Files of a prompt in the format of the AI SDK.

import type { FilePart, LanguageModelMiddleware } from 'ai'

import { File } from './contract.ts'
import type { Call } from './echo_model.ts'
import { FORMATS } from './files.ts'
import { MAX_DOCUMENTS } from './models/file_types.ts'

const LOST = '[A file that the session store has lost]'

type Prompt = Call['prompt']
type StoredPart = { type: string; data?: unknown; mediaType?: string; filename?: string }

/** Return the message parts of files, which JSON can store. */
export function toParts(files: readonly File[]): FilePart[] {
  return files.map(({ data, mediaType, name }) => {
    const encoded = Buffer.from(data).toString('base64')
    return { type: 'file', data: encoded, mediaType, ...(name && { filename: name }) }
  })
}

/** Return the files of a stored message, or in the content of a tool's result. */
export function filesIn({ content }: { content: unknown }): File[] {
  const parts = typeof content === 'string' ? [] : (content as StoredPart[])
  return parts.flatMap((part) => {
    // A file of a result has its data in another object.
    const data = (part.data as { data?: unknown } | undefined)?.data ?? part.data
    const isFile = ['file', 'file-data', 'image-data', 'media'].includes(part.type)
    if (!isFile || typeof data !== 'string') return []
    return [new File(part.mediaType ?? '', Buffer.from(data, 'base64'), part.filename)]
  })
}

/** Return the media types of the files in a prompt, also in the results of tools. */
export function mediaTypesIn(prompt: Prompt): string[] {
  return prompt.flatMap(partsOf).flatMap((part) => (part.type === 'file' ? [part.mediaType] : []))
}

/**
 * Return a prompt whose files the model accepts, also in the results of tools.
 *
 * A note replaces each file of another type, each file that the session store has lost, and all
 * documents but the last MAX_DOCUMENTS. Documents get different names, which Bedrock requires.
 */
export function sendable(prompt: Prompt, accepted: readonly string[]): Prompt {
  const names = new Set<string>()
  const isSent = (part: Part) => isDocument(part) && !noteFor(part, accepted)
  let excess = prompt.flatMap(partsOf).filter(isSent).length - MAX_DOCUMENTS
  return mapParts(prompt, (part) => {
    if (part.type !== 'file') return part
    const note = noteFor(part, accepted)
    if (note) return { type: 'text', text: note }
    if (!isDocument(part)) return part
    const { filename = 'file' } = part
    excess--
    if (excess < 0) return { ...part, filename: newName(filename, names) }
    return { type: 'text', text: `[The document ${filename}, which is no longer sent]` }
  })
}

function isDocument(part: Part): boolean {
  // The media type of a tool's file may be only its first half.
  return part.type === 'file' && !/^(image|text)(\/|$)/.test(part.mediaType)
}

/** Return what replaces a file that cannot be sent, or an empty string. */
function noteFor(part: Part, accepted: readonly string[]): string {
  if (part.type !== 'file') return ''
  const { data, mediaType } = part
  if (mediaType in FORMATS && !accepted.includes(mediaType)) {
    return `[A file of type ${mediaType}, which this model does not accept]`
  }
  return data.type === 'data' && data.data.length === 0 ? LOST : ''
}

/** Turns text files into text parts, because not every vendor accepts text files. */
export const withTexts: LanguageModelMiddleware = {
  async transformParams({ params }) {
    const prompt = mapParts(params.prompt, (part) => {
      if (part.type !== 'file' || part.data.type !== 'data') return part
      if (!part.mediaType.startsWith('text/')) return part
      const { data } = part.data
      const bytes = typeof data === 'string' ? Buffer.from(data, 'base64') : data
      return { type: 'text', text: `${part.filename}:\n${new TextDecoder().decode(bytes)}` }
    })
    return { ...params, prompt }
  },
}

type Message = Prompt[number]
type UserPart = Extract<Message, { role: 'user' }>['content'][number]
type ToolPart = Extract<Message, { role: 'tool' }>['content'][number]
type Output = Extract<ToolPart, { type: 'tool-result' }>['output']
type ResultPart = Extract<Output, { type: 'content' }>['value'][number]
type Part = UserPart | ResultPart
type FilePartOrText = Extract<UserPart, { type: 'text' | 'file' }>

/** Return the parts of a user's message, or of the results of tools. */
function partsOf({ role, content }: Message): Part[] {
  if (role === 'user') return content
  if (role !== 'tool') return []
  return content.flatMap((part): Part[] => {
    return part.type === 'tool-result' && part.output.type === 'content' ? part.output.value : []
  })
}

/** Return a prompt with other parts in the user's messages and in the results of tools. */
function mapParts(prompt: Prompt, change: <T extends Part>(part: T) => T | FilePartOrText): Prompt {
  return prompt.map((message) => {
    if (message.role === 'user') return { ...message, content: message.content.map(change) }
    if (message.role !== 'tool') return message
    const content = message.content.map((part) => {
      if (part.type !== 'tool-result' || part.output.type !== 'content') return part
      return { ...part, output: { ...part.output, value: part.output.value.map(change) } }
    })
    return { ...message, content }
  })
}

/**
 * Return a new file name with the characters that Bedrock accepts, and add it to `names`.
 *
 * The client for Bedrock cuts names at the first dot and at 200 characters.
 */
function newName(filename: string, names: Set<string>): string {
  const [, stem = '', extension = ''] = /^(.*?)(\.[^.]*)?$/s.exec(filename) ?? []
  const valid = stem.replace(/[^A-Za-z0-9()[\]]+/g, '-').slice(0, 180)
  let name = valid
  for (let number = 2; names.has(name); number++) name = `${valid}-${number}`
  names.add(name)
  return name + extension
}
