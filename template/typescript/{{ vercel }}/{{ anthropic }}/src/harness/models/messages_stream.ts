// Completes and checks the streams of Messages servers before the client reads them.

import { type LanguageModelMiddleware, TypeValidationError } from 'ai'

import { AgentError, isBlank } from '../contract.ts'
import type { Part } from '../echo_model.ts'

type Event = {
  type?: string
  message?: { usage?: object | null }
  index?: number
  delta?: {
    type?: string
    stop_reason?: string | null
    signature?: string
    partial_json?: string
  }
  content_block?: {
    type?: string
    text?: string
    thinking?: string
    signature?: string
    input?: unknown
  }
  usage?: object | null
}

const PING = 'data: {"type":"ping"}\n'
const STOP = 'event: message_stop\ndata: {"type":"message_stop"}\n\n'
// Known events, blocks and deltas: if the client cannot read these, the stream is broken.
const KNOWN = [
  'message_start message_delta message_stop content_block_stop error',
  'text thinking redacted_thinking tool_use',
  'text_delta thinking_delta signature_delta input_json_delta',
].flatMap((kinds) => kinds.split(' '))

/**
 * Return a `fetch` whose streams have usage, and an end after a stop reason.
 *
 * The client ignores the content of a block's start, so deltas repeat it.
 */
export function completed(fetch: typeof globalThis.fetch): typeof globalThis.fetch {
  return async (input, init) => {
    const response = await fetch(input, init)
    const isStream = response.headers.get('content-type')?.startsWith('text/event-stream')
    if (!isStream || !response.body) return response
    const lines = response.body.pipeThrough(new TextDecoderStream()).pipeThrough(completing())
    return new Response(lines.pipeThrough(new TextEncoderStream()), response)
  }
}

function completing(): TransformStream<string, string> {
  let rest = ''
  let isStopped = false
  let isClosed = false
  const blocks = new Blocks()
  const read = (line: string): string => {
    const event = eventOf(line)
    if (event) blocks.check(event)
    if (event?.type === 'message_stop') isClosed = true
    if (event?.type === 'message_delta' && event.delta?.stop_reason) isStopped = true
    if (event?.delta?.type === 'signature_delta' && !event.delta.signature) return PING
    if (event?.type === 'content_block_start') return [line, ...followUps(event)].join('\n')
    return event && addUsage(event) ? `data: ${JSON.stringify(event)}\n` : line
  }
  return new TransformStream({
    transform(text, controller) {
      const end = text.lastIndexOf('\n') + 1
      if (end === 0) {
        rest += text
        return
      }
      const lines = (rest + text.slice(0, end)).split(/(?<=\n)/)
      rest = text.slice(end)
      controller.enqueue(lines.map(read).join(''))
    },
    flush(controller) {
      const last = rest && `${read(rest)}\n`
      controller.enqueue(isStopped && !isClosed ? `${last}\n${STOP}` : last)
    },
  })
}

/** Checks the blocks of an answer: the client drops deltas of a block that is not open. */
class Blocks {
  readonly #open = new Set<unknown>()
  readonly #withoutArguments = new Set<unknown>() // indexes of calls without arguments

  /** Throw AgentError for arguments that may belong to another call. */
  check({ type, index, delta, content_block: block }: Event): void {
    if (type === 'content_block_start') this.#open.add(index)
    if (type === 'content_block_stop') this.#open.delete(index)
    if (block?.type === 'tool_use') {
      // Later arguments of the first call would mix with the arguments of this call.
      const isUnclear = this.#withoutArguments.has(index)
      if (isUnclear) throw new AgentError('model_failed', '', 'two calls have one index')
      const isEmpty = Object.keys(Object(block.input)).length === 0
      if (isEmpty) this.#withoutArguments.add(index)
    }
    const text = delta?.partial_json ?? ''
    if (text && !this.#open.has(index)) {
      throw new AgentError('model_failed', '', 'arguments outside of a call')
    }
    if (!isBlank(text)) this.#withoutArguments.delete(index)
  }
}

function eventOf(line: string): Event | undefined {
  if (!line.startsWith('data:')) return undefined
  try {
    return Object(JSON.parse(line.slice(5)))
  } catch {
    return undefined // the client reports the error
  }
}

/** Return the content of a block's start as events. */
function followUps({ index, content_block: block = {} }: Event): string[] {
  const deltas = []
  if (block.type === 'text') deltas.push({ type: 'text_delta', text: block.text })
  if (block.type === 'thinking') {
    deltas.push({ type: 'thinking_delta', thinking: block.thinking })
    deltas.push({ type: 'signature_delta', signature: block.signature })
  }
  return deltas
    .filter((delta) => Object.values(delta)[1])
    .map((delta) => JSON.stringify({ type: 'content_block_delta', index, delta }))
    .map((data) => `event: content_block_delta\ndata: ${data}\n`)
}

/** Add missing usage to an event that requires it; return whether it was missing. */
function addUsage(event: Event): boolean {
  const owner = event.type === 'message_start' ? event.message : event
  const isOwner = event.type === 'message_start' || event.type === 'message_delta'
  if (!isOwner || !owner || owner.usage) return false
  owner.usage = { input_tokens: 0, output_tokens: 0 }
  return true
}

/** Skip unknown types of events and blocks, as Anthropic's documentation requires. */
export const skippingUnknown: LanguageModelMiddleware = {
  async wrapStream({ doStream }) {
    const { stream, ...rest } = await doStream()
    const known = new TransformStream<Part, Part>({
      transform(part, controller) {
        const isUnknown = part.type === 'error' && hasUnknownKind(part.error)
        if (!isUnknown) controller.enqueue(part)
      },
    })
    return { ...rest, stream: stream.pipeThrough(known) }
  },
}

function hasUnknownKind(error: unknown): boolean {
  if (!TypeValidationError.isInstance(error)) return false
  const { type, delta, content_block: block } = Object(error.value) as Event
  const kind = type === 'content_block_start' ? block?.type : delta?.type
  return !KNOWN.includes((type?.startsWith('content_block') && kind) || `${type}`)
}
