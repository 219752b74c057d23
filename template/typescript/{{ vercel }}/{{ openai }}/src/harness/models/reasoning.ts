// Keeps reasoning and signatures of calls, and sends them back in their original fields.

import type { LanguageModelMiddleware } from 'ai'

import type { Call, Part } from '../echo_model.ts'

type Prompt = Call['prompt']
type ToolCallPart = Extract<Part, { type: 'tool-call' }>
type Detail = Record<string, unknown>
type Fields = { name?: string; details?: Detail[] }
type ToolCall = {
  index: number
  id?: string
  extra_content?: { google?: { thought_signature?: string } }
}

const NAMES = ['reasoning_content', 'reasoning'] as const
// The text fields of a detail, which arrive in pieces.
const PIECES = ['text', 'summary', 'data']

/** Record the fields of reasoning that the client drops, and send them back unchanged. */
export const keepingReasoning: LanguageModelMiddleware = {
  async transformParams({ params }) {
    return { ...params, includeRawChunks: true, prompt: params.prompt.map(withFields) }
  },
  async wrapStream({ doStream }) {
    const { stream, ...rest } = await doStream()
    return { ...rest, stream: stream.pipeThrough(recording()) }
  },
}

/** Add an empty part of reasoning whose metadata contains the dropped fields. */
function recording(): TransformStream<Part, Part> {
  const fields: Fields = {}
  const signatures = new Signatures()
  return new TransformStream({
    transform(part, controller) {
      if (part.type === 'raw') {
        const delta = Object(Object(part.rawValue).choices?.[0]).delta ?? {}
        record(fields, delta)
        signatures.record(delta.tool_calls ?? [])
        return
      }
      if (part.type === 'tool-call') return controller.enqueue(signatures.signed(part))
      if (part.type === 'finish' && (fields.details || fields.name === 'reasoning')) {
        const providerMetadata = { openai: { fields: fields as never } }
        controller.enqueue({ type: 'reasoning-start', id: 'fields', providerMetadata })
        controller.enqueue({ type: 'reasoning-end', id: 'fields' })
      }
      controller.enqueue(part)
    },
  })
}

/** The signatures of calls: the client drops signatures after the first delta of a call. */
class Signatures {
  readonly #ids = new Map<number, string>()
  readonly #signatures = new Map<string, string>()

  record(calls: ToolCall[]): void {
    for (const { index, id, extra_content: extra } of calls) {
      if (id) this.#ids.set(index, id)
      const signature = extra?.google?.thought_signature
      if (signature) this.#signatures.set(this.#ids.get(index) ?? '', signature)
    }
  }

  signed(call: ToolCallPart): ToolCallPart {
    const thoughtSignature = this.#signatures.get(call.toolCallId)
    if (!thoughtSignature) return call
    return { ...call, providerMetadata: { ...call.providerMetadata, google: { thoughtSignature } } }
  }
}

function record(fields: Fields, delta: Detail): void {
  const name = NAMES.find((field) => delta[field])
  if (name) fields.name ??= name
  if (!Array.isArray(delta.reasoning_details)) return
  const details = (fields.details ??= [])
  for (const detail of delta.reasoning_details.map(Object)) {
    const last = details.at(-1)
    const isPiece = last && continuesLast(last, detail)
    if (isPiece) extend(last, detail)
    else details.push({ ...detail })
  }
}

/** Return whether a detail continues the last: without an index, only text is split. */
function continuesLast(last: Detail, detail: Detail): boolean {
  if (last.type !== detail.type || last.index !== detail.index) return false
  return typeof detail.index === 'number' || detail.type !== 'reasoning.encrypted'
}

function extend(detail: Detail, piece: Detail): void {
  for (const [key, value] of Object.entries(piece)) {
    const before = detail[key]
    const isText = PIECES.includes(key) && typeof before === 'string' && typeof value === 'string'
    if (isText) detail[key] = before + value
    else if (value !== null && value !== undefined) detail[key] = value
  }
}

/** Return a message with its reasoning in the original fields. */
function withFields(message: Prompt[number]): Prompt[number] {
  if (message.role !== 'assistant') return message
  const reasoning = message.content.filter((part) => part.type === 'reasoning')
  const recorded = reasoning.flatMap(({ providerOptions }) => providerOptions?.openai?.fields ?? [])
  const { name, details } = Object(recorded[0]) as Fields
  if (!name && !details) return message
  const content = message.content.filter((part) => part.type !== 'reasoning')
  const text = reasoning.map((part) => part.text).join('')
  const named = text ? { [name ?? 'reasoning']: text } : {}
  const openaiCompatible = { ...named, ...(details && { reasoning_details: details as never }) }
  return { ...message, content, providerOptions: { ...message.providerOptions, openaiCompatible } }
}
