// Files of a prompt in the format of Strands Agents.

import { DocumentBlock, ImageBlock, Message, TextBlock } from '@strands-agents/sdk'
import { ToolResultBlock } from '@strands-agents/sdk'
import type { ContentBlock, MessageData, ToolResultContent } from '@strands-agents/sdk'

import { File } from './contract.ts'
import { FORMATS, type MediaType } from './files.ts'
import { MAX_DOCUMENTS } from './models/file_types.ts'

const LOST = '[A file that the session store has lost]'
const MAX_NAME = 180 // characters; Bedrock accepts 200
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

/** Return the media type of a file; '' for a format that is not in FORMATS. */
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

/** Return the files of a stored message. @public */
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

/** Return the media types of the files in messages, also in the results of tools. */
export function mediaTypesIn(messages: readonly Message[]): string[] {
  return messages.flatMap(flat).filter(isFile).map(mediaTypeOf)
}

/**
 * Return messages whose files the model accepts, also in the results of tools.
 *
 * Texts become text blocks. A note replaces each file of another type, each file that the session
 * store has lost, and all documents but the last MAX_DOCUMENTS. Documents get different names,
 * which Bedrock requires.
 */
export function sendable(messages: readonly Message[], accepted: readonly string[]): Message[] {
  const isSent = (block: Block) => isDocument(block) && !noteFor(block, accepted)
  let excess = messages.flatMap(flat).filter(isSent).length - MAX_DOCUMENTS
  const names = new Set<string>()
  function convertFile<T extends Block>(block: T): T | TextBlock | DocumentBlock {
    const note = noteFor(block, accepted)
    if (note) return new TextBlock(note)
    if (block.type !== 'documentBlock') return block
    const { name, format, source } = block
    if (!isDocument(block)) {
      const bytes = 'bytes' in source ? source.bytes : new Uint8Array()
      return new TextBlock(`${name}.${format}:\n${new TextDecoder().decode(bytes)}`)
    }
    excess--
    if (excess >= 0) return new TextBlock(`[The document ${name}, which is no longer sent]`)
    return new DocumentBlock({ name: newName(name, names), format, source: source as never })
  }
  const convert = (block: ContentBlock): ContentBlock => {
    if (block.type !== 'toolResultBlock') return convertFile(block)
    return new ToolResultBlock({ ...block, content: block.content.map(convertFile) })
  }
  return messages.map((message) => {
    if (!flat(message).some(isFile)) return message
    return new Message({ ...message, content: message.content.map(convert) })
  })
}

type Block = ContentBlock | ToolResultContent

/** Return the blocks of a message, and those of a tool's result instead of the result. */
function flat({ content }: Message): Block[] {
  return content.flatMap((block): Block[] => {
    return block.type === 'toolResultBlock' ? block.content : [block]
  })
}

function isFile(block: Block): block is ImageBlock | DocumentBlock {
  return block.type === 'imageBlock' || block.type === 'documentBlock'
}

function isDocument(block: Block): block is DocumentBlock {
  return block.type === 'documentBlock' && !mediaTypeOf(block).startsWith('text/')
}

/** Return what replaces a file that cannot be sent, or an empty string. */
function noteFor(block: Block, accepted: readonly string[]): string {
  if (!isFile(block)) return ''
  const mediaType = mediaTypeOf(block)
  if (mediaType && !accepted.includes(mediaType)) {
    return `[A file of type ${mediaType}, which this model does not accept]`
  }
  return 'bytes' in block.source && block.source.bytes.length === 0 ? LOST : ''
}

function newName(name: string, names: Set<string>): string {
  const stem = name.slice(0, MAX_NAME)
  let result = stem
  for (let number = 2; names.has(result); number++) result = `${stem} ${number}`
  names.add(result)
  return result
}
