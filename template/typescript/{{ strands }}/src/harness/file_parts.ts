// Files of a prompt in the format of Strands Agents.

import { DocumentBlock, ImageBlock, TextBlock } from '@strands-agents/sdk'
import type { ContentBlock, Message, MessageData } from '@strands-agents/sdk'
import type { ToolResultContent } from '@strands-agents/sdk'

import { File } from './contract.ts'
import { FORMATS, type MediaType } from './files.ts'

const MEDIA_TYPES = new Map(Object.entries(FORMATS).map(([type, format]) => [format, type]))

type Format = (typeof FORMATS)[MediaType]
type ImageFormat = 'png' | 'jpeg' | 'gif' | 'webp'
type DocumentFormat = Exclude<Format, ImageFormat>
type StoredFile = { format: Format; name?: string; source: { bytes?: string } }

/** Return the content blocks of files. */
export function toParts(files: readonly File[]): ContentBlock[] {
  return files.map(({ data: bytes, isImage, mediaType, name }) => {
    const format = FORMATS[mediaType as MediaType]
    if (isImage) return new ImageBlock({ format: format as ImageFormat, source: { bytes } })
    const stem = name.endsWith(`.${format}`) ? name.slice(0, -1 - format.length) : name
    // Bedrock accepts these characters, and no runs of spaces.
    const valid = stem.replace(/[^A-Za-z0-9()[\] -]+/g, '-').replace(/ +/g, ' ')
    const label = valid.replace(/^[ -]+|[ -]+$/g, '') || 'file'
    return new DocumentBlock({ name: label, format: format as DocumentFormat, source: { bytes } })
  })
}

/** Return the media type of a file; '' if this template cannot have sent it. */
export function mediaTypeOf({ format }: ImageBlock | DocumentBlock): string {
  return MEDIA_TYPES.get(format as Format) ?? ''
}

/** Return the files in the content of a tool's result. */
export function filesOf(content: readonly ToolResultContent[]): File[] {
  return content.flatMap((block) => {
    if (block.type !== 'imageBlock' && block.type !== 'documentBlock') return []
    const mediaType = mediaTypeOf(block)
    if (!mediaType || !('bytes' in block.source)) return []
    const name = block.type === 'documentBlock' ? `${block.name}.${block.format}` : ''
    return [new File(mediaType, block.source.bytes, name)]
  })
}

/** Return the files of a stored message. */
export function filesIn({ content }: Pick<MessageData, 'content'>): File[] {
  return (content as { image?: StoredFile; document?: StoredFile }[]).flatMap((block) => {
    const stored = block.image ?? block.document
    const mediaType = stored && MEDIA_TYPES.get(stored.format)
    if (!mediaType) return []
    const { format, name, source } = stored
    const data = Buffer.from(source.bytes ?? '', 'base64')
    return [new File(mediaType, data, name === undefined ? '' : `${name}.${format}`)]
  })
}

/**
 * Return blocks in which a note replaces each file that the model does not accept.
 *
 * Documents get names that are not in `names`, because Bedrock requires different names.
 */
export function sendable(
  content: Message['content'],
  accepted: readonly string[],
  names: Set<string>,
): ContentBlock[] {
  return content.map((block) => {
    if (block.type !== 'imageBlock' && block.type !== 'documentBlock') return block
    const mediaType = mediaTypeOf(block)
    if (mediaType && !accepted.includes(mediaType)) {
      return new TextBlock(`[A file of type ${mediaType}, which this model does not accept]`)
    }
    if (block.type === 'imageBlock') return block
    let name = block.name
    for (let number = 2; names.has(name); number++) name = `${block.name} ${number}`
    names.add(name)
    const { format, source } = block
    return new DocumentBlock({ name, format, source: source as never })
  })
}
