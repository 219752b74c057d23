// POST and GET /api/chat: the UI message stream of the AI SDK, for its useChat.

import { setImmediate, setTimeout as sleep } from 'node:timers/promises'

import { Capability, type Routes } from '../capability.ts'
import { AgentError, checkPrompt, type Chunk, Data, File, FileUrl, KEY } from '../contract.ts'
import { Reasoning, SESSION_HEADER, SESSION_ID, Source, TurnRequest } from '../contract.ts'
import type { ToolCall, ToolResult, Turn, TurnFields, TurnResult } from '../contract.ts'
import { checkCount, decodeFile, plainType } from '../files.ts'
import { parseJson, readActor, receive } from './requests.ts'
import type { Handler, Runtime } from '../modules.ts'
import { Events, relay, STREAM_HEADERS } from './server.ts'
import { serialize, type Session, type WaitingTurn } from '../sessions/sessions.ts'
import type { CoreSettings } from '../settings.ts'
import { readTurns } from './stored_messages.ts'

const DONE = 'data: [DONE]\n\n'
const POSITION = /^turn-([1-9]\d{0,14})$/ // the id of the message of a turn without a key

type Request = Parameters<Handler>[0]
type Response = Parameters<Handler>[1]
type Part = { type: string; [field: string]: unknown }
type Fields = Record<string, unknown>
type Answers = { approve: unknown[]; deny: { id: unknown; reason?: unknown }[] }
/** The routes for a page with useChat; the id of the chat is the session id. */
export class ChatRoute extends Capability {
  /** Return the reason for a failed turn, to append to the message, or ''. */
  explain: (error: AgentError) => Promise<string> = async () => ''

  override routes(): Routes {
    let lastRead: Promise<unknown> = Promise.resolve()

    const post: Handler = async (request, response, runtime) => {
      response.setHeader('Cache-Control', 'no-store')
      const read = () => readRequest(request, response, runtime)
      const [turnRequest, last] = await runtime.turns.reading(read)
      await relay(response, runtime, turnRequest, new UiEvents(last, this.explain))
    }

    const get: Handler = async (request, response, runtime) => {
      response.setHeader('Cache-Control', 'no-store')
      const ids = new URLSearchParams(request.url?.split('?').slice(1).join('?')).getAll('id')
      const sessionId = readId(response, ids.length === 1 ? ids[0] : null)
      const actor = readActor(request, runtime)
      const text = await runtime.turns.reading(() => {
        // Read one session at a time, because a large session blocks the process for a moment.
        const read = lastRead.then(async () => {
          return serialize(uiMessages(await runtime.sessions.read(sessionId, actor)))
        })
        // Serve other requests first. A timer started earlier would include the time of the read.
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

    const path = '/api/chat'
    const stream = `GET ${path}/{id:path}/stream`
    return { [`GET ${path}`]: get, [`POST ${path}`]: post, [stream]: resume }
  }
}

interface PageState {
  /** The number of the turn above the message, or null if unknown. */
  readonly previousTurn: number | null
  /** The id of the user's message in that turn. */
  readonly previousId: string | null
  /** The id of the message to replace. */
  readonly replacedId: string | null
  /** The number of the last turn that the page shows. */
  readonly lastTurn: number | null
}

/** A request for a turn that follows the turns on the page, or replaces a turn. */
class PageRequest extends TurnRequest {
  readonly page: PageState

  constructor(fields: TurnFields, page: PageState) {
    super(fields)
    this.page = page
  }

  /** A replaced message gets a new reply, even with the same key. */
  override get isRepeatable(): boolean {
    return this.page.replacedId === null
  }

  /** Return the number of turns to keep. */
  override follow(session: Session): number {
    const { replacedId, previousTurn, previousId, lastTurn } = this.page
    const { waiting } = session
    const committed = waiting ? waiting.turn - 1 : session.number // committed turns on the page
    const visible = committed + (waiting ? 1 : 0)
    if (visible > 0 && lastTurn !== null && lastTurn !== visible) throw conflict()
    const start = session.number - session.turns.length + 1
    const position = POSITION.exec(replacedId ?? '')
    const numbers = numbersOf(session)
    let number = numbers.get(replacedId ?? '')
    if (number === undefined && previousTurn !== null) {
      // The page may show a branch that the session no longer has.
      const isKnown = previousId === null || numbers.has(previousId) || POSITION.test(previousId)
      if (visible > 0 && previousTurn >= start && !isKnown) throw conflict()
      number = Math.min(previousTurn, committed) + 1
    } else if (number === undefined && position) {
      number = start + session.find(Number(position[1]))
    } else if (number === undefined && replacedId && visible > 0 && lastTurn === null) {
      throw conflict()
    }
    number ??= session.number + 1
    return Math.min(Math.max(number - start, 0), session.turns.length)
  }
}

function conflict(): AgentError {
  const message = 'The session has changed. Reload it; nothing was saved.'
  return new AgentError('session_conflict', message)
}

/**
 * A reply as the parts of the UI message stream; tools are dynamic: a page declares none.
 *
 * `last` is the last message of the page: the user's, or the reply to continue.
 */
class UiEvents extends Events {
  override readonly headers = {
    ...STREAM_HEADERS,
    'Cache-Control': 'no-cache, no-store',
    'x-vercel-ai-ui-message-stream': 'v1',
  }
  readonly #explain: ChatRoute['explain']
  readonly #id: string
  readonly #denied: string[]
  /** The ids of the calls that the page shows. */
  readonly #called: Set<string>
  /** The kind of the open part. */
  #open: 'text' | 'reasoning' | null = null
  #parts = 0
  #sources = 0
  #hasBegun = false

  constructor(last: Fields, explain: ChatRoute['explain']) {
    super()
    this.#explain = explain
    const { approve, deny } = readAnswers(last)
    this.#id = last.role === 'assistant' ? (last.id as string) : replyId(last.id as string)
    this.#denied = deny.map(({ id }) => callId(id))
    this.#called = new Set([...approve.map(callId), ...this.#denied])
  }

  /** Return the part with the id of the reply. */
  override formatStart(): string {
    return part('start', { messageId: this.#id })
  }

  /** Return the parts of a chunk; recalled memories and denials come before the first. */
  override formatChunk(chunk: Chunk, turn: Turn): string {
    const parts = this.#begin(turn)
    if (typeof chunk === 'string') return parts + this.#delta('text', chunk)
    if (chunk instanceof Reasoning) return parts + this.#delta('reasoning', chunk.text)
    const end = parts + this.#endPart()
    if (chunk instanceof Data) return end + part(`data-${chunk.name}`, { data: chunk.value })
    if (chunk instanceof Source) return end + this.#source(chunk)
    if ('input' in chunk) return end + this.#call(chunk.id, chunk.name, chunk.input)
    if (this.#denied.includes(chunk.id)) return end
    const files = chunk.files ?? []
    const fileParts = files.map((file) =>
      part('file', { mediaType: file.mediaType, url: urlOf(file) }),
    )
    return [end, resultPart(chunk), ...fileParts].join('')
  }

  #source({ url, title }: Source): string {
    this.#sources++
    return part('source-url', { sourceId: `source-${this.#sources}`, url, title })
  }

  /** Return the last parts of a committed or pending turn. */
  override formatResult({ waiting, marks, usage, ...result }: TurnResult, turn: Turn): string {
    let parts = this.#begin(turn) + this.#endPart()
    for (const { id, name, input } of waiting) {
      parts += this.#call(callId(id), name, input)
      parts += part('tool-approval-request', { approvalId: id, toolCallId: callId(id) })
    }
    const dropped = marks.includes('dropped') && { dropped: true }
    const { milliseconds } = turn
    const metadata = { turn: result.turn, milliseconds, ...usage, ...dropped }
    const finishReason = waiting.length > 0 ? 'tool-calls' : 'stop'
    return parts + part('finish', { finishReason, messageMetadata: metadata }) + DONE
  }

  /** Return the last parts of a failed turn. */
  override async formatError(failure: AgentError): Promise<string> {
    const { type, message } = failure
    const errorText = `${type}: ${message}${await this.#explain(failure)}`
    return part('error', { errorText }) + DONE
  }

  #begin({ recalled: data }: Turn): string {
    if (this.#hasBegun) return ''
    this.#hasBegun = true
    const parts = data.length > 0 ? [part('data-recalled', { data })] : []
    const denied = this.#denied.map((toolCallId) => part('tool-output-denied', { toolCallId }))
    return [...parts, ...denied].join('')
  }

  #call(toolCallId: string, toolName: string, input: unknown): string {
    if (this.#called.has(toolCallId)) return ''
    this.#called.add(toolCallId)
    return part('tool-input-available', { toolCallId, toolName, input, dynamic: true })
  }

  /** Return the parts for more of a text or of the reasoning. */
  #delta(kind: 'text' | 'reasoning', delta: string): string {
    if (!delta) return ''
    let parts = ''
    if (this.#open !== kind) {
      parts = this.#endPart()
      this.#open = kind
      this.#parts++
      parts += part(`${kind}-start`, { id: `${kind}-${this.#parts}` })
    }
    return parts + part(`${kind}-delta`, { id: `${kind}-${this.#parts}`, delta })
  }

  #endPart(): string {
    const kind = this.#open
    this.#open = null
    return kind ? part(`${kind}-end`, { id: `${kind}-${this.#parts}` }) : ''
  }
}

/** Return the turn that a page requests, and the last message of the page. */
async function readRequest(
  request: Request,
  response: Response,
  runtime: Runtime,
): Promise<[TurnRequest, Fields]> {
  const body = parseJson(await receive(request, runtime.settings.maxBodyBytes))
  if (!isObject(body)) throw new AgentError('invalid_request', 'The body must be an object.')
  const { headers } = request
  const sessionId = readId(response, body.id)
  const messages = body.messages ?? [body.message]
  const last = fieldsOf(Array.isArray(messages) ? messages.at(-1) : null)
  const { approve, deny } = readAnswers(last)
  if (typeof last.id === 'string' && approve.length + deny.length) {
    const answers = runtime.readRequest({ approve, deny }, sessionId)
    const caller = { actor: readActor(request, runtime), key: null, headers }
    if (answers) return [answers.of(caller), last]
  }
  if (last.role !== 'user') {
    throw new AgentError('invalid_request', 'The last message must have role user.')
  }
  const messageId = body.messageId ?? null
  const lastSeen = body.seen ?? null
  const isId = messageId === null || typeof messageId === 'string'
  if (!isId || !(lastSeen === null || isNumber(lastSeen))) {
    const message = 'Send messageId as the id of a message, and seen as a turn number or 0.'
    throw new AgentError('invalid_request', message)
  }
  const { parts } = last
  if (!Array.isArray(parts) || !parts.every((part) => isText(part) || isFile(part))) {
    throw new AgentError('invalid_request', 'The parts of a message must be text or files.')
  }
  const texts = parts.filter(isText).map((part) => part.text)
  const text = texts.join('')
  const prompt = checkPrompt(text, runtime.settings.maxPromptChars)
  const actor = readActor(request, runtime)
  const { id } = last
  if (typeof id !== 'string' || !KEY.test(id)) {
    const message = 'The id of a message must have 1 to 128 visible ASCII characters.'
    throw new AgentError('invalid_request', message)
  }
  const replacedId = body.trigger === 'regenerate-message' ? id : messageId
  // assistant-ui sends all messages of its page, and its tools.
  const pageMessages = Array.isArray(body.messages) ? body.messages : []
  const isWhole = pageMessages.length > 1 || (pageMessages[0] && 'tools' in body)
  const previous = isWhole
    ? previousOf(pageMessages.slice(0, -1))
    : { previousTurn: null, previousId: null }
  const files = readFiles(parts.filter(isFile), runtime.settings)
  const fields = { sessionId, actor, key: id, prompt, headers, files }
  return [new PageRequest(fields, { replacedId, ...previous, lastTurn: lastSeen }), last]
}

/** Return the number of the last turn in the messages, or 0, and the id of its prompt. */
function previousOf(messages: unknown[]): Pick<PageState, 'previousTurn' | 'previousId'> {
  let previousTurn = 0
  let [previousId, promptId]: [string | null, string | null] = [null, null]
  for (const message of messages) {
    const { role, id, metadata } = fieldsOf(message)
    if (role === 'user' && typeof id === 'string') promptId = id
    const { turn } = fieldsOf(metadata)
    if (!isNumber(turn)) continue
    previousTurn = turn
    previousId = promptId
  }
  return { previousTurn, previousId }
}

/** Return a page's answers to pending calls, in the form of POST /invocations. */
function readAnswers({ role, parts }: Fields): Answers {
  const answers: Answers = { approve: [], deny: [] }
  const partList = role === 'assistant' && Array.isArray(parts) ? parts.map(fieldsOf) : []
  for (const { state, approval } of partList) {
    const { id, approved, reason } = fieldsOf(approval)
    if (state !== 'approval-responded') continue
    if (approved === true) answers.approve.push(id)
    else answers.deny.push(reason === undefined ? { id } : { id, reason })
  }
  return answers
}

function fieldsOf(value: unknown): Fields {
  return isObject(value) ? value : {}
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
}

function readId(response: Response, value: unknown): string {
  // assistant-ui adds this prefix.
  const id = typeof value === 'string' ? value.replace(/^__(?=LOCALID_)/, '') : value
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

type FilePart = { mediaType: string; url: string; filename?: unknown }

function isFile(value: unknown): value is FilePart {
  if (!isObject(value) || value.type !== 'file') return false
  return typeof value.mediaType === 'string' && typeof value.url === 'string'
}

/** Return the files of a message, whose URLs contain their data or are fetched later. */
function readFiles(parts: FilePart[], settings: CoreSettings): File[] {
  checkCount(parts.length, settings)
  return parts.map(({ mediaType, url, filename }) => {
    const name = typeof filename === 'string' ? filename : ''
    if (/^https?:/i.test(url)) return new FileUrl(url, plainType(mediaType), name)
    const [head = '', data] = url.split(';base64,')
    if (data === undefined || !head.startsWith('data:')) {
      const message = 'Send a file as a data URL in base64, or as an https URL.'
      throw new AgentError('invalid_request', message)
    }
    return decodeFile(mediaType, data, name, settings)
  })
}

/** Return turn numbers by the ids of their prompts. A prompt's id is the key of its turn. */
function numbersOf(session: Session): Map<string, number> {
  const { last, number, turns, waiting } = session
  const numbers = new Map<string | null, number>()
  if (last) numbers.set(last.key, number) // the last request may have had its own key
  const first = number - turns.length + 1
  for (const [index, { key }] of turns.entries()) numbers.set(key, first + index)
  if (waiting) numbers.set(waiting.prompt_key ?? `turn-${waiting.turn}`, waiting.turn)
  numbers.delete(null)
  return numbers as Map<string, number>
}

/** Return the messages of a session, including its pending turn. */
function uiMessages(session: Session): object[] {
  const { data, number, waiting } = session
  const start = session.turns[0]?.at ?? data.messages.length // after a summary
  const turns = readTurns(data.messages.slice(start))
  const ids = new Map([...numbersOf(session)].map(([id, turn]) => [turn, id]))
  const first = number - turns.length + 1
  let exchanges = turns.map(([prompt, files, chunks], index) => {
    return { turn: first + index, prompt, files, parts: partsOf(chunks) }
  })
  if (waiting) {
    exchanges = exchanges.filter(({ turn }) => turn < waiting.turn)
    const files = readTurns([...waiting.messages]).flatMap(([, added]) => added)
    exchanges.push({ ...waiting, files, parts: waitingParts(waiting) })
  }
  const messages = exchanges.flatMap(({ turn, prompt, files, parts }) => {
    const id = ids.get(turn) ?? `turn-${turn}`
    return [
      { id, role: 'user', parts: [{ type: 'text', text: prompt }, ...files.map(filePart)] },
      { id: replyId(id), role: 'assistant', parts, metadata: { turn } },
    ]
  })
  return start > 0 ? [summaryNote(first - 1), ...messages] : messages
}

function filePart(file: File): Part {
  return { type: 'file', mediaType: file.mediaType, filename: file.name, url: urlOf(file) }
}

function urlOf({ data, mediaType }: File): string {
  return `data:${mediaType};base64,${Buffer.from(data).toString('base64')}`
}

function summaryNote(turn: number): object {
  const subject = turn > 1 ? `Turns 1 to ${turn} are` : 'Turn 1 is'
  const text = `${subject} gone: the agent has a summary of earlier messages.`
  return { id: 'summary', role: 'system', parts: [{ type: 'text', text }], metadata: { turn } }
}

/** Return the finished parts and the pending calls of a turn, but not its running calls. */
function waitingParts({ messages, reply, calls }: WaitingTurn): Part[] {
  const parts = readTurns([...messages]).flatMap(([, , chunks]) => partsOf(chunks))
  const finished = parts.filter(({ state }) => state !== 'input-available')
  // Strands stores the message with the calls separately.
  const rest = reply.slice(finished.map(({ text }) => text ?? '').join('').length)
  if (rest) finished.push(...partsOf([rest]))
  const pending = calls.flatMap(({ id, tool: name, input }) =>
    partsOf([{ id: callId(id), name, input }]).map((part) => {
      return { ...part, state: 'approval-requested', approval: { id } }
    }),
  )
  return [...finished, ...pending]
}

/** Return the id of a pending call from the id of its approval. */
function callId(approval: unknown): string {
  return String(approval).replace(/\.[^.]*$/, '')
}

function partsOf(chunks: (string | ToolCall | ToolResult)[]): Part[] {
  const parts: Part[] = []
  const tools = new Map<string, Part>()
  for (const chunk of chunks) {
    const last = parts.at(-1)
    if (typeof chunk !== 'string' && 'input' in chunk) {
      const { id: toolCallId, name: toolName, input } = chunk
      const tool = { type: 'dynamic-tool', toolName, toolCallId, input, state: 'input-available' }
      tools.set(toolCallId, tool)
      parts.push(tool)
    } else if (typeof chunk !== 'string') {
      const success = { state: 'output-available', output: valueOf(chunk) }
      const failure = { state: 'output-error', errorText: chunk.text }
      Object.assign(tools.get(chunk.id) ?? {}, chunk.isError ? failure : success)
      parts.push(...(chunk.files ?? []).map(filePart))
    } else if (last?.type === 'text') {
      last.text += chunk
    } else {
      parts.push({ type: 'text', text: chunk, state: 'done' })
    }
  }
  return parts
}

/** Return the stream part for a tool result. */
function resultPart(result: ToolResult): string {
  const { id: toolCallId, text: errorText, isError } = result
  const dynamic = true
  if (isError) return part('tool-output-error', { toolCallId, errorText, dynamic })
  return part('tool-output-available', { toolCallId, output: valueOf(result), dynamic })
}

function valueOf(result: ToolResult): unknown {
  return 'value' in result ? result.value : result.text
}

function replyId(id: string): string {
  return `${id}-reply`
}

function part(type: string, fields: Fields): string {
  return `data: ${serialize({ type, ...fields })}\n\n`
}
