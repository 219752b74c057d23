// Reasoning goes back to a server under the name under which it came.

import type { LanguageModelMiddleware } from 'ai'

import type { Call, Part } from './offline_model.ts'

type Prompt = Call['prompt']
type Detail = Record<string, unknown>
type Fields = { name?: string; details?: Detail[] }

const NAMES = ['reasoning_content', 'reasoning'] as const
// The texts of a detail, which come in pieces.
const PIECES = ['text', 'summary', 'data']

/** Note the fields of reasoning that the client does not keep, and send them back as they came. */
export const keepingReasoning: LanguageModelMiddleware = {
  async transformParams({ params }) {
    return { ...params, includeRawChunks: true, prompt: params.prompt.map(withFields) }
  },
  async wrapStream({ doStream }) {
    const { stream, ...about } = await doStream()
    return { ...about, stream: stream.pipeThrough(noting()) }
  },
}

/** Add a part of reasoning without text to an answer, which holds what the client drops. */
function noting(): TransformStream<Part, Part> {
  const fields: Fields = {}
  return new TransformStream({
    transform(part, controller) {
      if (part.type === 'raw') return note(fields, part.rawValue)
      if (part.type === 'finish' && (fields.details || fields.name === 'reasoning')) {
        const providerMetadata = { openai: { fields: fields as never } }
        controller.enqueue({ type: 'reasoning-start', id: 'fields', providerMetadata })
        controller.enqueue({ type: 'reasoning-end', id: 'fields' })
      }
      controller.enqueue(part)
    },
  })
}

function note(fields: Fields, chunk: unknown): void {
  const delta = Object(Object(chunk).choices?.[0]).delta ?? {}
  const name = NAMES.find((one) => delta[one])
  if (name) fields.name ??= name
  if (!Array.isArray(delta.reasoning_details)) return
  const details = (fields.details ??= [])
  for (const detail of delta.reasoning_details.map(Object)) {
    const last = details.at(-1)
    const isPiece = last && last.type === detail.type && last.index === detail.index
    if (isPiece) extend(last, detail)
    else details.push({ ...detail })
  }
}

function extend(detail: Detail, piece: Detail): void {
  for (const [key, value] of Object.entries(piece)) {
    const before = detail[key]
    const isText = PIECES.includes(key) && typeof before === 'string' && typeof value === 'string'
    if (isText) detail[key] = before + value
    else if (value !== null && value !== undefined) detail[key] = value
  }
}

/** Return a message with its reasoning in the fields in which it came. */
function withFields(message: Prompt[number]): Prompt[number] {
  if (message.role !== 'assistant') return message
  const reasoning = message.content.filter((part) => part.type === 'reasoning')
  const noted = reasoning.flatMap(({ providerOptions }) => providerOptions?.openai?.fields ?? [])
  const { name, details } = Object(noted[0]) as Fields
  if (!name && !details) return message
  const content = message.content.filter((part) => part.type !== 'reasoning')
  const text = reasoning.map((part) => part.text).join('')
  const named = text ? { [name ?? 'reasoning']: text } : {}
  const openaiCompatible = { ...named, ...(details && { reasoning_details: details as never }) }
  return { ...message, content, providerOptions: { ...message.providerOptions, openaiCompatible } }
}
