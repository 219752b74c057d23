// POST and GET /api/chat: the UI message stream of the AI SDK, for its useChat.

import { setImmediate, setTimeout as sleep } from 'node:timers/promises'

import { Capability, type Routes } from './capability.ts'
import { AgentError, checkPrompt, type Chunk, KEY } from './contract.ts'
import { SESSION_HEADER, SESSION_ID, Turn } from './contract.ts'
import { parseJson, readActor, receive } from './requests.ts'
import type { Handler } from './routes.ts'
import type { Runtime } from './runtime.ts'
import { Events, relay } from './server.ts'
import { serialize, type Snapshot } from './sessions.ts'
import { readTurns } from './stored_messages.ts'

const STREAM_HEADER = 'x-vercel-ai-ui-message-stream'
const DONE = 'data: [DONE]\n\n'

type Request = Parameters<Handler>[0]
type Response = Parameters<Handler>[1]
type Part = { type: string; [field: string]: unknown }
type Fields = Record<string, unknown>

/** The routes for a page with useChat; the chat's id is the session's. */
export class ChatRoute extends Capability {
  /** Return why a turn failed, to show it behind the message, or nothing. */
  explain: (error: AgentError) => Promise<string> = async () => ''

  override routes(): Routes {
    let lastRead: Promise<unknown> = Promise.resolve()

    const post: Handler = async (request, response, runtime) => {
      response.setHeader('Cache-Control', 'no-store')
      const turn = await runtime.turns.reading(() => readTurn(request, response, runtime))
      const events = new UiEvents(response, turn, this.explain)
      await relay(response, runtime, turn, events)
    }

    const get: Handler = async (request, response, runtime) => {
      response.setHeader('Cache-Control', 'no-store')
      const ids = new URLSearchParams(request.url?.split('?').slice(1).join('?')).getAll('id')
      const sessionId = readId(response, ids.length === 1 ? ids[0] : null)
      const actor = readActor(request, runtime)
      const text = await runtime.turns.reading(() => {
        // One by one: a large session takes all of the process for a moment.
        const read = lastRead.then(async () => {
          const snapshot = await runtime.sessions.read(sessionId, actor)
          return serialize(snapshot ? uiMessages(snapshot) : [])
        })
        // Then others are served; a timer that began at once would count the time of the read.
        lastRead = Promise.allSettled([read]).then(() => setImmediate().then(() => sleep(10)))
        return read
      })
      response.setHeader('Content-Type', 'application/json')
      response.setHeader('X-Content-Type-Options', 'nosniff')
      response.end(text)
    }

    const resume: Handler = (_, response) => {
      // There is nothing to resume: a turn ends when its client leaves.
      response.writeHead(204, { 'Cache-Control': 'no-store' }).end()
    }

    return { 'GET /api/chat': get, 'POST /api/chat': post, 'GET /api/chat/{id}/stream': resume }
  }
}

/** A reply as the parts of the UI message stream; tools are dynamic, as a page knows none. */
class UiEvents extends Events {
  readonly #response: Response
  readonly #turn: Turn
  readonly #explain: ChatRoute['explain']
  #texts = 0
  #isText = false
  #hasBegun = false

  constructor(response: Response, turn: Turn, explain: ChatRoute['explain']) {
    super()
    this.#response = response
    this.#turn = turn
    this.#explain = explain
  }

  /** Return the part with the id of the reply. */
  override start(): string {
    this.#response.setHeader(STREAM_HEADER, 'v1')
    return part('start', { messageId: replyId(this.#turn.key) })
  }

  /** Return the parts for a chunk, the first time after the recalled texts. */
  override chunk(chunk: Chunk): string {
    const parts = this.#begin()
    if (typeof chunk === 'string') return parts + this.#text(chunk)
    const [end, toolCallId, dynamic] = [parts + this.#endText(), chunk.id, true]
    if ('name' in chunk) {
      const { name: toolName, input } = chunk
      return end + part('tool-input-available', { toolCallId, toolName, input, dynamic })
    }
    const { text, isError } = chunk
    if (!isError) return end + part('tool-output-available', { toolCallId, output: text, dynamic })
    return end + part('tool-output-error', { toolCallId, errorText: text, dynamic })
  }

  /** Return the last parts of a committed turn. */
  override done(_result: object, turn: Turn): string {
    const { number, milliseconds, inputTokens, outputTokens } = turn
    const messageMetadata = { turn: number, milliseconds, inputTokens, outputTokens }
    const finish = part('finish', { finishReason: 'stop', messageMetadata })
    return this.#endText() + finish + DONE
  }

  /** Return the last parts of a turn that failed; nothing of it was kept. */
  override async error(failure: AgentError): Promise<string> {
    const { type, message } = failure
    const errorText = `${type}: ${message}${await this.#explain(failure)}`
    return part('error', { errorText }) + DONE
  }

  #begin(): string {
    if (this.#hasBegun) return ''
    this.#hasBegun = true
    const data = (this.#turn.notes.get('recalled') ?? []) as string[]
    return data.length > 0 ? part('data-recalled', { data }) : ''
  }

  #text(delta: string): string {
    if (!delta) return ''
    const isFirst = !this.#isText
    if (isFirst) this.#texts++
    this.#isText = true
    const id = `text-${this.#texts}`
    return (isFirst ? part('text-start', { id }) : '') + part('text-delta', { id, delta })
  }

  #endText(): string {
    if (!this.#isText) return ''
    this.#isText = false
    return part('text-end', { id: `text-${this.#texts}` })
  }
}

/** Read the turn of which useChat sends the messages; only the last one counts. */
async function readTurn(request: Request, response: Response, runtime: Runtime): Promise<Turn> {
  const body = parseJson(await receive(request, runtime.settings.maxBodyBytes))
  if (!isObject(body)) throw new AgentError('invalid_request', 'The body must be an object.')
  const sessionId = readId(response, body.id)
  const messages = body.messages ?? [body.message]
  const last: unknown = Array.isArray(messages) ? messages.at(-1) : null
  if (!isObject(last) || last.role !== 'user') {
    throw new AgentError('invalid_request', 'The last message must be one of role user.')
  }
  if (body.trigger === 'submit-message' && (body.messageId ?? null) !== null) {
    const what = 'A message that was sent cannot be changed: send another one.'
    throw new AgentError('invalid_request', what)
  }
  if (!Array.isArray(last.parts) || !last.parts.every(isText)) {
    throw new AgentError('invalid_request', 'The parts of a message must be texts.')
  }
  const text = last.parts.map(({ text: part }) => part).join('')
  const prompt = checkPrompt(text, runtime.settings.maxPromptChars)
  const [actor, key] = [readActor(request, runtime), last.id]
  if (typeof key !== 'string' || !KEY.test(key)) {
    const what = 'The id of a message is 1 to 128 visible ASCII characters.'
    throw new AgentError('invalid_request', what)
  }
  return new Turn({ sessionId, actor, key, prompt, headers: request.headers })
}

function readId(response: Response, given: unknown): string {
  // assistant-ui makes such ids.
  const id = typeof given === 'string' ? given.replace(/^__(?=LOCALID_)/, '') : given
  if (typeof id !== 'string' || !SESSION_ID.test(id)) throw new AgentError('invalid_session_id')
  response.setHeader(SESSION_HEADER, id)
  return id
}

function isObject(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isText(value: unknown): value is { text: string } {
  return isObject(value) && value.type === 'text' && typeof value.text === 'string'
}

/** Return the messages of a session; the last prompt has its key as id: it can be replayed. */
function uiMessages({ app_data: last, data }: Snapshot): object[] {
  const turns = readTurns((data as { messages: unknown[] }).messages)
  return turns.flatMap(([prompt, chunks], index) => {
    const turn = last.turn - turns.length + 1 + index
    const id = turn === last.turn && last.key ? last.key : `turn-${turn}`
    const said = { type: 'text', text: prompt }
    return [
      { id, role: 'user', parts: [said] },
      { id: replyId(id), role: 'assistant', parts: partsOf(chunks), metadata: { turn } },
    ]
  })
}

function partsOf(chunks: Chunk[]): Part[] {
  const [parts, tools] = [[] as Part[], new Map<string, Part>()]
  for (const chunk of chunks) {
    const last = parts.at(-1)
    if (typeof chunk !== 'string' && 'name' in chunk) {
      const { id: toolCallId, name: toolName, input } = chunk
      const tool = { type: 'dynamic-tool', toolName, toolCallId, input, state: 'input-available' }
      tools.set(toolCallId, tool)
      parts.push(tool)
    } else if (typeof chunk !== 'string') {
      const done = { state: 'output-available', output: chunk.text }
      const failed = { state: 'output-error', errorText: chunk.text }
      Object.assign(tools.get(chunk.id) ?? {}, chunk.isError ? failed : done)
    } else if (last?.type === 'text') {
      last.text += chunk
    } else {
      parts.push({ type: 'text', text: chunk, state: 'done' })
    }
  }
  return parts
}

function replyId(id: string | null): string {
  return `${id}-reply`
}

function part(type: string, fields: Fields): string {
  return `data: ${serialize({ type, ...fields })}\n\n`
}
