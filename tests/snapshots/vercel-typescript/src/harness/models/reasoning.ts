// Reasoning goes back to a server under the name that the server gave it, signatures with their
// calls.

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
  const signatures = new Signatures()
  return new TransformStream({
    transform(part, controller) {
      if (part.type === 'raw') {
        const delta = Object(Object(part.rawValue).choices?.[0]).delta ?? {}
        note(fields, delta)
        signatures.note(delta.tool_calls ?? [])
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

/** The signatures of calls: the client drops those behind the first delta of a call. */
class Signatures {
  readonly #ids = new Map<number, string>()
  readonly #signatures = new Map<string, string>()

  note(calls: ToolCall[]): void {
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

function note(fields: Fields, delta: Detail): void {
  const name = NAMES.find((one) => delta[one])
  if (name) fields.name ??= name
  if (!Array.isArray(delta.reasoning_details)) return
  const details = (fields.details ??= [])
  for (const detail of delta.reasoning_details.map(Object)) {
    const last = details.at(-1)
    const isPiece = last && isSame(last, detail)
    if (isPiece) extend(last, detail)
    else details.push({ ...detail })
  }
}

/** Whether a detail is a piece of the one before: without an index, only text comes in pieces. */
function isSame(last: Detail, detail: Detail): boolean {
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
