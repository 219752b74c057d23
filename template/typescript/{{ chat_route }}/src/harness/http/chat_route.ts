// POST and GET /api/chat: the UI message stream of the AI SDK, for its useChat.

import { setImmediate, setTimeout as sleep } from 'node:timers/promises'

import { Capability, type Routes } from '../capability.ts'
import { AgentError, checkPrompt, type Chunk, Data, KEY, type TurnFields } from '../contract.ts'
import { SESSION_HEADER, SESSION_ID, Source, TurnRequest } from '../contract.ts'
import type { ToolCall, ToolResult, Turn, TurnResult } from '../contract.ts'
import { parseJson, readActor, receive } from './requests.ts'
import type { Handler, Runtime } from '../modules.ts'
import { Events, relay, STREAM_HEADERS } from './server.ts'
import { serialize, type Session, type WaitingTurn } from '../sessions/sessions.ts'
import { readTurns } from './stored_messages.ts'

const DONE = 'data: [DONE]\n\n'
const POSITION = /^turn-([1-9]\d{0,14})$/ // the id of the message of a turn without a key

type Request = Parameters<Handler>[0]
type Response = Parameters<Handler>[1]
type Part = { type: string; [field: string]: unknown }
type Fields = Record<string, unknown>
type Answers = { approve: unknown[]; deny: { id: unknown; reason?: unknown }[] }
/** The routes for a page with useChat; the chat's id is the session's. */
export class ChatRoute extends Capability {
  /** Return why a turn failed, to show it behind the message, or nothing. */
  explain: (error: AgentError) => Promise<string> = async () => ''

  override routes(): Routes {
    let lastRead: Promise<unknown> = Promise.resolve()

    const post: Handler = async (request, response, runtime) => {
      response.setHeader('Cache-Control', 'no-store')
      const read = () => readRequest(request, response, runtime)
      const [asked, last] = await runtime.turns.reading(read)
      await relay(response, runtime, asked, new UiEvents(last, this.explain))
    }

    const get: Handler = async (request, response, runtime) => {
      response.setHeader('Cache-Control', 'no-store')
      const ids = new URLSearchParams(request.url?.split('?').slice(1).join('?')).getAll('id')
      const sessionId = readId(response, ids.length === 1 ? ids[0] : null)
      const actor = readActor(request, runtime)
      const text = await runtime.turns.reading(() => {
        // One at a time: a large session blocks the process for a moment.
        const read = lastRead.then(async () => {
          return serialize(uiMessages(await runtime.sessions.read(sessionId, actor)))
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

interface PageState {
  /** The number of the last turn above the message; null if the page does not say. */
  readonly after: number | null
  /** The id of the user's message of that turn. */
  readonly afterId: string | null
  /** The id of the message that is sent again. */
  readonly replaced: string | null
  /** The last turn that the page knows. */
  readonly seen: number | null
}

/** A request for a turn that follows the turns on the page, or replaces a turn. */
class PageRequest extends TurnRequest {
  readonly shown: PageState

  constructor(asked: TurnFields, shown: PageState) {
    super(asked)
    this.shown = shown
  }

  /** A message that is sent again is answered again. */
  override get isRepeatable(): boolean {
    return this.shown.replaced === null
  }

  /** Return the number of turns to keep. */
  override follow(session: Session): number {
    const { replaced, after, afterId, seen } = this.shown
    const { waiting } = session
    const committed = waiting ? waiting.turn - 1 : session.number // committed turns on the page
    const shown = committed + (waiting ? 1 : 0)
    if (shown > 0 && seen !== null && seen !== shown) throw conflict()
    const first = session.number - session.turns.length + 1
    const position = POSITION.exec(replaced ?? '')
    const numbers = numbersOf(session)
    let number = numbers.get(replaced ?? '')
    if (number === undefined && after !== null) {
      // A page can show a branch that the session no longer has.
      const isKnown = afterId === null || numbers.has(afterId) || POSITION.test(afterId)
      if (shown > 0 && after >= first && !isKnown) throw conflict()
      number = Math.min(after, committed) + 1
    } else if (number === undefined && position) {
      number = first + session.find(Number(position[1]))
    } else if (number === undefined && replaced && shown > 0 && seen === null) {
      throw conflict()
    }
    number ??= session.number + 1
    return Math.min(Math.max(number - first, 0), session.turns.length)
  }
}

function conflict(): AgentError {
  const what = 'The session has changed. Reload it; nothing was saved.'
  return new AgentError('session_conflict', what)
}

/**
 * A reply as the parts of the UI message stream; tools are dynamic, as a page knows none.
 *
 * `last` is the last message of the page: the user's, or the reply that goes on.
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
  #texts = 0
  #sources = 0
  #isText = false
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

  /** Return the parts for a chunk, the first time after the recalled texts and denials. */
  override formatChunk(chunk: Chunk, turn: Turn): string {
    const parts = this.#begin(turn)
    if (typeof chunk === 'string') return parts + this.#text(chunk)
    const end = parts + this.#endText()
    if (chunk instanceof Data) return end + part(`data-${chunk.name}`, { data: chunk.value })
    if (chunk instanceof Source) return end + this.#source(chunk)
    if ('input' in chunk) return end + this.#call(chunk.id, chunk.name, chunk.input)
    return this.#denied.includes(chunk.id) ? end : end + resultPart(chunk)
  }

  #source({ url, title }: Source): string {
    this.#sources++
    return part('source-url', { sourceId: `source-${this.#sources}`, url, title })
  }

  /** Return the last parts of a turn that is committed, or waits for approvals. */
  override formatResult({ waiting, marks, usage, ...result }: TurnResult, turn: Turn): string {
    let parts = this.#begin(turn) + this.#endText()
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

  /** Return the last parts of a turn that failed; nothing was saved. */
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

/** Read the request of a page, and the last of its messages. */
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
    throw new AgentError('invalid_request', 'The last message must be one of role user.')
  }
  const messageId = body.messageId ?? null
  const seen = body.seen ?? null
  const isNamed = messageId === null || typeof messageId === 'string'
  if (!isNamed || !(seen === null || isNumber(seen))) {
    const what = 'Send messageId as the id of a message, and seen as the number of a turn, or 0.'
    throw new AgentError('invalid_request', what)
  }
  if (!Array.isArray(last.parts) || !last.parts.every(isText)) {
    throw new AgentError('invalid_request', 'The parts of a message must be texts.')
  }
  const text = last.parts.map(({ text: part }) => part).join('')
  const prompt = checkPrompt(text, runtime.settings.maxPromptChars)
  const actor = readActor(request, runtime)
  const { id } = last
  if (typeof id !== 'string' || !KEY.test(id)) {
    const what = 'The id of a message is 1 to 128 visible ASCII characters.'
    throw new AgentError('invalid_request', what)
  }
  const replaced = body.trigger === 'regenerate-message' ? id : messageId
  // A page of assistant-ui sends all messages that it shows, and its tools.
  const all = Array.isArray(body.messages) ? body.messages : []
  const isWhole = all.length > 1 || (all[0] && 'tools' in body)
  const above = isWhole ? lastTurn(all.slice(0, -1)) : { after: null, afterId: null }
  const asked = { sessionId, actor, key: id, prompt, headers }
  return [new PageRequest(asked, { replaced, ...above, seen }), last]
}

/** Return the number of the last turn that a page shows, or 0, and the id of its prompt. */
function lastTurn(messages: unknown[]): Pick<PageState, 'after' | 'afterId'> {
  let [after, afterId, promptId]: [number, string | null, string | null] = [0, null, null]
  for (const message of messages) {
    const { role, id, metadata } = fieldsOf(message)
    if (role === 'user' && typeof id === 'string') promptId = id
    const { turn } = fieldsOf(metadata)
    if (!isNumber(turn)) continue
    after = turn
    afterId = promptId
  }
  return { after, afterId }
}

/** Return a page's answers to pending calls, in the form of POST /invocations. */
function readAnswers({ role, parts }: Fields): Answers {
  const answers: Answers = { approve: [], deny: [] }
  const answered = role === 'assistant' && Array.isArray(parts) ? parts.map(fieldsOf) : []
  for (const { state, approval } of answered) {
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

/** Return the numbers of the turns by the ids of their prompts, which are their keys. */
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

/** Return the messages of a session, and those of the turn that waits, if one does. */
function uiMessages(session: Session): object[] {
  const { data, number, waiting } = session
  const start = session.turns[0]?.at ?? data.messages.length // behind a summary
  const turns = readTurns(data.messages.slice(start))
  const ids = new Map([...numbersOf(session)].map(([id, turn]) => [turn, id]))
  const first = number - turns.length + 1
  let shown = turns.map(([prompt, chunks], index) => {
    return { turn: first + index, prompt, parts: partsOf(chunks) }
  })
  if (waiting) {
    shown = shown.filter(({ turn }) => turn < waiting.turn)
    shown.push({ ...waiting, parts: waitingParts(waiting) })
  }
  const messages = shown.flatMap(({ turn, prompt, parts }) => {
    const id = ids.get(turn) ?? `turn-${turn}`
    return [
      { id, role: 'user', parts: [{ type: 'text', text: prompt }] },
      { id: replyId(id), role: 'assistant', parts, metadata: { turn } },
    ]
  })
  return start > 0 ? [summaryNote(first - 1), ...messages] : messages
}

function summaryNote(turn: number): object {
  const which = turn > 1 ? `Turns 1 to ${turn} are` : 'Turn 1 is'
  const text = `${which} gone: the agent has a summary of earlier messages.`
  return { id: 'summary', role: 'system', parts: [{ type: 'text', text }], metadata: { turn } }
}

/** Return the finished parts of the turn and its pending calls, without calls that still run. */
function waitingParts({ messages, reply, calls }: WaitingTurn): Part[] {
  const parts = readTurns([...messages]).flatMap(([, chunks]) => partsOf(chunks))
  const done = parts.filter(({ state }) => state !== 'input-available')
  // Strands keeps the message that makes the calls apart.
  const rest = reply.slice(done.map(({ text }) => text ?? '').join('').length)
  if (rest) done.push(...partsOf([rest]))
  const asked = calls.flatMap(({ id, tool: name, input }) =>
    partsOf([{ id: callId(id), name, input }]).map((part) => {
      return { ...part, state: 'approval-requested', approval: { id } }
    }),
  )
  return [...done, ...asked]
}

/** Return the id of a call that waits, given the id of its approval. */
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
      const done = { state: 'output-available', output: valueOf(chunk) }
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

/** Return the part of a result as it arrives. */
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
