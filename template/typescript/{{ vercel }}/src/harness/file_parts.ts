// Files of a prompt in the format of the AI SDK.

import type { FilePart, LanguageModelMiddleware } from 'ai'

import { File } from './contract.ts'
import type { Call } from './echo_model.ts'
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

/**
 * Return a prompt in which a note replaces each file that the model does not accept.
 *
 * A note also replaces all documents but the last MAX_DOCUMENTS. Documents get different names,
 * which Bedrock requires.
 */
export function sendable(prompt: Prompt, accepted: readonly string[]): Prompt {
  const names = new Set<string>()
  const parts = prompt.flatMap((message) => (message.role === 'user' ? message.content : []))
  let excess = parts.filter(isDocument).length - MAX_DOCUMENTS
  return mapParts(prompt, (part) => {
    if (part.type !== 'file') return part
    const { filename = 'file', mediaType } = part
    if (!accepted.includes(mediaType)) {
      const text = `[A file of type ${mediaType}, which this model does not accept]`
      return { type: 'text', text }
    }
    const { data } = part
    if (data.type === 'data' && data.data.length === 0) return { type: 'text', text: LOST }
    if (!isDocument(part)) return part
    excess--
    if (excess < 0) return { ...part, filename: newName(filename, names) }
    return { type: 'text', text: `[The document ${filename}, which is no longer sent]` }
  })
}

function isDocument(part: Part): boolean {
  return part.type === 'file' && !/^(image|text)\//.test(part.mediaType)
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

type Part = Extract<Prompt[number], { role: 'user' }>['content'][number]

/** Return a prompt with other parts in the user's messages. */
function mapParts(prompt: Prompt, change: (part: Part) => Part): Prompt {
  return prompt.map((message) => {
    if (message.role !== 'user') return message
    return { ...message, content: message.content.map(change) }
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
