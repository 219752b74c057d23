// Files of a prompt in the format of the AI SDK.

import type { FilePart, LanguageModelMiddleware } from 'ai'

import { File } from './contract.ts'
import type { Call } from './echo_model.ts'

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
 * Documents get different names, which Bedrock requires.
 */
export function sendable(prompt: Prompt, accepted: readonly string[]): Prompt {
  const names = new Set<string>()
  return mapParts(prompt, (part) => {
    if (part.type !== 'file') return part
    const { filename = 'file', mediaType } = part
    if (!accepted.includes(mediaType)) {
      const text = `[A file of type ${mediaType}, which this model does not accept]`
      return { type: 'text', text }
    }
    return mediaType.startsWith('image/') ? part : { ...part, filename: newName(filename, names) }
  })
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

/** Return a file name whose letters, digits and brackets are not in `names`, and add them. */
function newName(filename: string, names: Set<string>): string {
  const [, stem = '', extension = ''] = /^(.*?)(\.[^.]*)?$/s.exec(filename) ?? []
  const keyOf = (name: string) => name.replace(/[^A-Za-z0-9()[\]-]/g, '')
  let name = stem
  for (let number = 2; names.has(keyOf(name)); number++) name = `${stem} ${number}`
  names.add(keyOf(name))
  return name + extension
}
