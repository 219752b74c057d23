// Rewrites the responses of Chat Completions servers as the strict stream that clients expect.
//
// Servers frame events, number tool calls and end answers in different ways. `chatFetch` rewrites
// the bytes of an answer before a client parses them. A broken stream keeps no finish reason, and
// the arguments of tool calls are unchanged.

import { randomBytes } from 'node:crypto'

import { AgentError } from '../contract.ts'
import { boundedFetch } from './provider.ts'
import type { CoreSettings } from '../settings.ts'

const LINE_END = /\r\n|\n|\r/
const JSON_MARK = /\\.?|["{}]/gs // also matches escaped characters
// Matches only a field of a request: JSON strings contain escaped quotes.
const STREAMED = /"stream"\s*:\s*true/
// Arguments that are not a string.
const PLAIN_ARGUMENTS = /"(arguments|parameters|input)"\s*:\s*[^"\s]/

// Finish reasons of servers, in lower case, by their equivalent in Chat Completions.
const REASON_SYNONYMS = {
  '': 'none not_finished null',
  stop:
    'complete completed done end end_of_text end_turn eos eos_found eos_token finished ' +
    'normal stop stop_sequence stop_str stop_token',
  tool_calls: 'function_call function_calls tool_call tool_calls tool_use',
  length:
    'context_length error_limit length max_length max_new_tokens max_output_tokens ' +
    'max_tokens model_context_window_exceeded model_length token_limit truncated',
  content_filter:
    'blocklist content_filter content_filtered error_toxic ' +
    'guardrail_intervened image_safety prohibited_content recitation refusal safety sensitive spii',
}
const REASONS = new Map(
  Object.entries(REASON_SYNONYMS).flatMap(([reason, words]) =>
    words.split(' ').map((word) => [word, reason] as const),
  ),
)

const STRUCTURE = ['type', 'format', 'index', 'id'] // in each part of `reasoning_details`

const NO_ANSWER = 'The response is not in the format of Chat Completions.'
const MIXED = 'The server mixed the arguments of its tool calls.'

const PIECE_SIZE = 4096

type Json = Record<string, unknown>

// TypeScript has no type for it yet.
const { rawJSON } = JSON as unknown as { rawJSON: (text: string) => unknown }

/** Return a `fetch` like `boundedFetch`, which makes streamed answers strict. */
export function chatFetch(settings: CoreSettings): typeof globalThis.fetch {
  const fetch = boundedFetch(settings)
  return async (input, init) => {
    const response = await fetch(input, init)
    const { pathname } = new URL(input instanceof Request ? input.url : input)
    const isStreamed = typeof init?.body === 'string' && STREAMED.test(init.body)
    const isChat = isStreamed && pathname.endsWith('/chat/completions')
    if (response.status !== 200 || !isChat || !response.body) return response
    const stream = new ChatStream(settings)
    const strict = new TransformStream<Uint8Array, Uint8Array>({
      transform(data, controller) {
        for (const piece of pieces(stream.read(data))) controller.enqueue(piece)
      },
      flush(controller) {
        for (const piece of pieces(stream.end())) controller.enqueue(piece)
      },
    })
    const headers = new Headers(response.headers)
    headers.set('content-type', 'text/event-stream')
    return new Response(response.body.pipeThrough(strict), { status: 200, headers })
  }
}

/** Split bytes: OpenAI's client copies the rest of a piece after each event. */
function* pieces(bytes: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += PIECE_SIZE) yield bytes.subarray(at, at + PIECE_SIZE)
}

/**
 * A streamed answer: `read` and `end` return the bytes for the client.
 *
 * Both throw AgentError for an event over the limit, and if reasoning and
 * arguments of tool calls together exceed it.
 */
export class ChatStream {
  readonly #events: EventReader
  readonly #answer: Answer

  constructor({ maxReplyBytes }: CoreSettings) {
    this.#events = new EventReader(6 * maxReplyBytes + 65_536)
    this.#answer = new Answer(maxReplyBytes)
  }

  /** Return the chunks that `data` completes. */
  read(data: Uint8Array): Uint8Array {
    return encode(this.#rewrite(this.#events.read(data)))
  }

  /** Return the remaining chunks after the end of the response. */
  end(): Uint8Array {
    return encode([...this.#rewrite(this.#events.end()), ...this.#answer.end()])
  }

  *#rewrite(events: Iterable<[string, string]>): Generator<Json | null> {
    for (const [name, data] of events) yield* this.#answer.read(name, data)
  }
}

/** Parses Server-Sent Events; a JSON body is a single event with the name `body`. */
class EventReader {
  readonly #decoder = new TextDecoder()
  readonly #maxSize: number
  #isJson: boolean | undefined
  #isAfterReturn = false
  // The parts of the current line, and the fields of the current event.
  #line: string[] = []
  #lineSize = 0
  #data: string[] = []
  #dataSize = 0
  #name = ''

  constructor(maxSize: number) {
    this.#maxSize = maxSize
  }

  /** Yield the name and data of each event that `data` completes. */
  read(data: Uint8Array): Generator<[string, string]> {
    return this.#read(this.#decoder.decode(data, { stream: true }))
  }

  /** Yield the last event, which may lack its final empty line. */
  *end(): Generator<[string, string]> {
    yield* this.#read(this.#decoder.decode())
    if (this.#isJson) yield ['body', this.#line.join('')]
    else yield* this.#read('\n\n')
  }

  *#read(input: string): Generator<[string, string]> {
    let text = input
    if (this.#isJson === undefined && text.trim()) this.#isJson = text.trimStart().startsWith('{')
    if (this.#isAfterReturn && text) {
      this.#isAfterReturn = false
      if (text.startsWith('\n')) text = text.slice(1)
    }
    const lines = this.#isJson ? [text] : text.split(LINE_END)
    const rest = lines.pop() ?? ''
    if (lines.length > 0 && !rest) this.#isAfterReturn = text.endsWith('\r')
    for (const line of lines) {
      this.#line.push(line)
      yield* this.#endOfLine(this.#line.join(''))
      this.#line = []
      this.#lineSize = 0
    }
    this.#line.push(rest)
    this.#lineSize += rest.length
    if (this.#lineSize + this.#dataSize > this.#maxSize) {
      throw new AgentError('reply_incomplete', '', 'MAX_REPLY_BYTES')
    }
  }

  *#endOfLine(line: string): Generator<[string, string]> {
    if (!line) {
      if (this.#data.length > 0) yield [this.#name, this.#data.join('\n')]
      this.#data = []
      this.#dataSize = 0
      this.#name = ''
      return
    }
    const colon = line.includes(':') ? line.indexOf(':') : line.length
    const field = line.slice(0, colon)
    const value = line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1)
    if (field === 'data') {
      this.#data.push(value)
      this.#dataSize += value.length + 1
    } else if (field === 'event') {
      this.#name = value
    }
  }
}

/**
 * Converts the events of an answer to strict chunks.
 *
 * Yields the finish reason and the usage once, at the end.
 */
class Answer {
  readonly #size: SizeLimit // of text that clients keep until the end
  readonly #calls: ToolCalls
  #base: Json | undefined
  #reason: string | undefined
  #usage: Json | undefined
  #hasDeltas = false
  #hasEnded = false

  constructor(maxSize: number) {
    this.#size = new SizeLimit(maxSize)
    this.#calls = new ToolCalls(this.#size)
  }

  /** Yield the strict chunks of an event; null ends the stream. */
  *read(name: string, data: string): Generator<Json | null> {
    if (this.#hasEnded || !data.trim()) return
    if (data.trim().startsWith('[DONE]')) {
      yield* this.#finish()
      return
    }
    const chunk = parse(data)
    const error = failure(chunk, name)
    if (error || !isObject(chunk)) {
      this.#hasEnded = true
      yield { error }
      return
    }
    yield* this.#strict(chunk, name === 'body')
    if (name === 'body') yield* this.#finish()
  }

  /** Yield the last chunks, unless the stream broke. */
  *end(): Generator<Json | null> {
    if (this.#hasEnded) return
    if (this.#reason) yield* this.#finish()
    else if (!this.#base) yield { error: { message: NO_ANSWER } }
  }

  *#strict(chunk: Json, isBody: boolean): Generator<Json> {
    this.#base = {
      id: textOr(chunk.id, 'chatcmpl'),
      object: 'chat.completion.chunk',
      created: typeof chunk.created === 'number' ? chunk.created : 0,
      model: textOr(chunk.model, ''),
    }
    Object.assign(chunk, this.#base)
    const choice = firstChoice(chunk)
    const usage = strictUsage(chunk.usage) ?? strictUsage(choice?.usage)
    this.#usage = usage ?? this.#usage
    delete chunk.usage
    delete choice?.usage
    if (!choice) {
      chunk.choices = []
      if (!usage) yield chunk
      return
    }
    const reason = meaning(choice.finish_reason)
    const isPlain = [undefined, 'stop', 'tool_calls'].includes(this.#reason)
    if (reason && isPlain) this.#reason = reason
    const delta = this.#delta(choice, isBody)
    Object.assign(choice, { index: 0, delta, finish_reason: null })
    if (!isObject(choice.logprobs)) delete choice.logprobs
    chunk.choices = [choice]
    if (Object.keys(delta).length > 0 || !reason) yield chunk
  }

  #delta(choice: Json, isBody: boolean): Json {
    const { message } = choice
    delete choice.message
    let delta = choice.delta
    if (isObject(delta) && !(isEmpty(delta.content) && isEmpty(delta.tool_calls))) {
      this.#hasDeltas = true
    } else if (isEmpty(delta) && !this.#hasDeltas) {
      delta = message // otherwise it repeats the deltas
    }
    if (!isObject(delta)) return {}
    if ('role' in delta) delta.role = 'assistant'
    this.#size.add(reasoningIn(delta))
    if (typeof delta.content !== 'string' && !isMissing(delta.content)) {
      delta.content = textOf(delta.content)
    }
    const legacy = isObject(delta.function_call)
      ? [{ index: 0, function: delta.function_call }]
      : undefined
    const calls = isEmpty(delta.tool_calls) ? legacy : delta.tool_calls
    delete delta.function_call
    delete delta.tool_calls
    if (calls) {
      const parts = this.#calls.read(Array.isArray(calls) ? calls : [calls], isBody)
      if (parts.length > 0) delta.tool_calls = parts
    }
    if (!areCitations(delta.annotations)) delete delta.annotations
    return delta
  }

  *#finish(): Generator<Json | null> {
    this.#hasEnded = true
    if (this.#calls.areMixed) {
      yield { error: { message: MIXED } }
      return
    }
    const empty = { id: 'chatcmpl', object: 'chat.completion.chunk', created: 0, model: '' }
    const base = this.#base ?? empty
    const nameless = this.#calls.end()
    const delta = nameless.length > 0 ? { tool_calls: nameless } : {}
    let reason = this.#reason
    if (!reason || reason === 'stop' || reason === 'tool_calls') {
      reason = this.#calls.count > 0 ? 'tool_calls' : 'stop'
    }
    yield { ...base, choices: [{ index: 0, delta, finish_reason: reason }] }
    if (this.#usage) yield { ...base, choices: [], usage: this.#usage }
    yield null
  }
}

/** Counts characters. `add` throws AgentError over the limit. */
class SizeLimit {
  readonly #maxSize: number
  #size = 0

  constructor(maxSize: number) {
    this.#maxSize = maxSize
  }

  /** Count the characters of a text. */
  add(text: string): void {
    this.#size += text.length
    if (this.#size > this.#maxSize) throw new AgentError('reply_incomplete', '', 'MAX_REPLY_BYTES')
  }
}

/** Finds the end of a JSON object in parts; reads each part once. */
class JsonObject {
  /** Only white space follows the last brace. */
  isWhole = false
  #hasEnded = false
  #count = 0 // of parts already read
  #depth = 0
  #isInString = false
  #rest = '' // a backslash at the end of a part

  /** Read the parts added since the last call. */
  read(parts: string[]): void {
    for (const text of parts.slice(this.#count)) {
      if (this.#hasEnded) this.isWhole &&= !text.trim()
      else this.#read(this.#rest + text)
    }
    this.#count = parts.length
  }

  #read(text: string): void {
    this.#rest = ''
    for (const { 0: mark, index } of text.matchAll(JSON_MARK)) {
      if (mark === '\\') {
        this.#rest = mark
      } else if (mark === '"') {
        this.#isInString = !this.#isInString
      } else if (!this.#isInString && (mark === '{' || mark === '}')) {
        this.#depth += mark === '{' ? 1 : -1
        if (this.#depth > 0) continue
        this.#hasEnded = true
        this.isWhole = !text.slice(index + 1).trim()
        return
      }
    }
  }
}

/** A tool call, accumulated from its parts. */
interface Call {
  index: number
  id: string
  /** Whether an earlier call has the same index. */
  sharesIndex: boolean
  serverId: string
  name: string
  arguments: string[]
  object: JsonObject
  /** Further fields of a call that is unsent because it has no name yet. */
  fields: Json
  isSent: boolean
}

/**
 * The tool calls of an answer, each with a unique index and id.
 *
 * Some servers omit these, or repeat them in different calls.
 */
class ToolCalls {
  readonly #calls: Call[] = []
  readonly #ids = new Set<string>()
  // By the server's names: an index, and an index with an id.
  readonly #latest = new Map<number | null, Call>()
  readonly #known = new Map<string, Call>()
  readonly #size: SizeLimit

  constructor(size: SizeLimit) {
    this.#size = size
  }

  get count(): number {
    return this.#calls.length
  }

  /** Convert the parts of a delta, or the calls of a body, to strict parts. */
  read(parts: unknown[], isBody: boolean): Json[] {
    const strict: Json[] = []
    const seen = new Set<Call>()
    for (const part of parts) {
      if (!isObject(part)) continue
      const { index: rawIndex, id, type: _, function: rawFunction, ...fields } = part
      const { name: rawName, ...more } = isObject(rawFunction) ? rawFunction : takeFunction(fields)
      const text = textOfArguments(takeArguments(more))
      const name = typeof rawName === 'string' ? rawName : ''
      this.#size.add(text)
      const index = indexOf(rawIndex)
      const serverId = textOr(id, '')
      let call = isBody ? undefined : this.#find(index, serverId, name, text)
      if (!(call || name || serverId || text)) continue
      // A delta has at most one part of a call.
      if (!call || (name && seen.has(call))) call = this.#add(index, serverId)
      seen.add(call)
      if (serverId && !call.serverId) this.#name(call, index, serverId)
      call.arguments.push(text)
      call.name ||= name
      if (call.isSent) {
        strict.push({ ...fields, index: call.index, function: { ...more, arguments: text } })
        continue
      }
      Object.assign(call.fields, fields)
      if (call.name) strict.push(firstPart(call, more))
    }
    return strict
  }

  /** Return the calls that have no name. */
  end(): Json[] {
    return this.#calls.filter(({ isSent }) => !isSent).map((call) => firstPart(call, {}))
  }

  /** Return whether calls with a shared index may have mixed their arguments. */
  get areMixed(): boolean {
    const texts = this.#calls.map((call) => call.arguments.join(''))
    if (texts.every((text) => text.trim())) return false
    return this.#calls.some((call, at) => {
      const hasParts = call.sharesIndex && call.arguments.length > 1
      return hasParts && !isObject(parse(texts[at] ?? ''))
    })
  }

  /** Return the call that a part continues, or undefined if it begins one. */
  #find(index: number | null, serverId: string, name: string, text: string): Call | undefined {
    const same = serverId ? this.#known.get(`${index} ${serverId}`) : undefined
    // Without a name and an id, a part continues the last call.
    const isNamed = name || serverId || this.#latest.has(index)
    const call = same ?? this.#latest.get(isNamed ? index : null)
    if (!call || (name && call.name && name !== call.name)) return undefined
    if (same || !(serverId || name)) return call
    if (serverId && call.serverId) return undefined
    // A late id or a repeated name continues a call, unless its arguments are complete.
    return name && text.trim() && isWhole(call) ? undefined : call
  }

  #add(index: number | null, serverId: string): Call {
    const isNew = serverId && !this.#ids.has(serverId)
    // All providers accept an id of nine letters and digits.
    const id = isNew ? serverId : randomBytes(5).toString('hex').slice(0, 9)
    const call: Call = {
      index: this.#calls.length,
      id,
      sharesIndex: this.#latest.has(index),
      serverId: '',
      name: '',
      arguments: [],
      object: new JsonObject(),
      fields: {},
      isSent: false,
    }
    this.#calls.push(call)
    this.#ids.add(id)
    this.#latest.set(index, call).set(null, call)
    return call
  }

  #name(call: Call, index: number | null, serverId: string): void {
    call.serverId = serverId
    this.#known.set(`${index} ${serverId}`, call).set(`null ${serverId}`, call)
  }
}

/** Return the first part of a call, with all its known fields. */
function firstPart(call: Call, more: Json): Json {
  call.isSent = true
  const { index, id, name } = call
  const function_ = { ...more, name, arguments: call.arguments.join('') }
  return { ...call.fields, index, id, type: 'function', function: function_ }
}

/** Remove and return the name and arguments of a part without a `function` object. */
function takeFunction(fields: Json): Json {
  const { name } = fields
  delete fields.name
  return { name, arguments: takeArguments(fields) }
}

/** Remove and return the arguments of a function, under any name that servers use. */
function takeArguments(fields: Json): unknown {
  const value = fields.arguments ?? fields.parameters ?? fields.input
  delete fields.arguments
  delete fields.parameters
  delete fields.input
  return value
}

/** Encode chunks as events. */
function encode(chunks: Iterable<Json | null>): Uint8Array {
  let events = ''
  for (const chunk of chunks) events += `data: ${chunk ? stringify(chunk) : '[DONE]'}\n\n`
  return new TextEncoder().encode(events)
}

/** Return JSON. An unpaired surrogate becomes U+FFFD, which clients can send. */
function stringify(value: unknown): string {
  const text = JSON.stringify(value)
  if (!text.includes('\\ud')) return text
  return text.replace(/\\(?:\\|ud...)/g, (escape) => (escape === '\\\\' ? escape : '\ufffd'))
}

function parse(data: string): unknown {
  try {
    // Keep the exact digits of numbers in object arguments.
    return PLAIN_ARGUMENTS.test(data) ? JSON.parse(data, exactly as never) : JSON.parse(data)
  } catch {
    return undefined
  }
}

/** Return the error in an event or a body, or undefined. */
function failure(chunk: unknown, name: string): Json | undefined {
  if (!isObject(chunk)) return { message: NO_ANSWER }
  let { error } = chunk
  delete chunk.error
  if (isEmpty(error)) error = firstChoice(chunk)?.error
  if (isEmpty(error) && (name === 'error' || chunk.object === 'error')) error = chunk
  if (!isEmpty(error)) {
    const fields: Json = isObject(error) ? error : { message: error }
    return { ...fields, message: typeof fields.message === 'string' ? fields.message : NO_ANSWER }
  }
  return name === 'body' && isEmpty(chunk.choices) ? { message: NO_ANSWER } : undefined
}

function firstChoice({ choices }: Json): Json | undefined {
  const list: unknown[] = Array.isArray(choices) ? choices : []
  return list.filter(isObject).find(({ index }) => !indexOf(index))
}

/** Return a whole number, also from text, or null. */
function indexOf(value: unknown): number | null {
  if (typeof value === 'string' && /^[0-9]{1,9}$/.test(value)) return Number(value)
  return Number.isInteger(value) ? (value as number) : null
}

/** Return the finish reason of Chat Completions; keep an unknown reason. */
function meaning(reason: unknown): string | undefined {
  if (typeof reason !== 'string') return undefined
  const [word = ''] = reason.toLowerCase().split(':')
  const known = word
    .trim()
    .replaceAll('-', '_')
    .replace(/^finish_reason_/, '')
  return (REASONS.get(known) ?? reason) || undefined
}

/**
 * Return the text of content that is not a string, without thinking.
 *
 * Mistral sends thinking in this form, and rejects it under the names of other vendors.
 */
function textOf(content: unknown): string | null {
  const parts = Array.isArray(content) ? (content as unknown[]) : [content]
  const texts = parts.map((part) => (isObject(part) ? part.text : part))
  return texts.filter((text) => typeof text === 'string').join('') || null
}

/** Return usage with all counts, or undefined. */
function strictUsage(usage: unknown): Json | undefined {
  if (!isObject(usage) || isEmpty(usage)) return undefined
  const count = (value: unknown) => (typeof value === 'number' ? value : 0)
  const prompt_tokens = count(usage.prompt_tokens)
  const completion_tokens = count(usage.completion_tokens)
  const total = usage.total_tokens
  const total_tokens = typeof total === 'number' ? total : prompt_tokens + completion_tokens
  Object.assign(usage, { prompt_tokens, completion_tokens, total_tokens })
  for (const key of ['prompt_tokens_details', 'completion_tokens_details']) {
    const details = usage[key]
    delete usage[key]
    if (!isObject(details)) continue
    const known = Object.entries(details).map(([name, value]) => [name, value ?? 0])
    usage[key] = Object.fromEntries(known)
  }
  return usage
}

function textOfArguments(value: unknown): string {
  if (typeof value === 'string') return value
  return isMissing(value) ? '' : stringify(value)
}

/** Return the longest reasoning in a delta: servers repeat the text in several fields. */
function reasoningIn(delta: Json): string {
  const { reasoning, reasoning_content: content, reasoning_details: details } = delta
  const parts = Array.isArray(details) ? details : [details]
  const texts = [reasoning, content].map(textOfArguments)
  texts.push(parts.map(textOfDetail).join(''))
  return texts.reduce((longest, text) => (text.length > longest.length ? text : longest))
}

/** Return the values of a detail, without its structure fields. */
function textOfDetail(detail: unknown): string {
  if (!isObject(detail)) return textOfArguments(detail)
  const fields = Object.entries(detail).filter(([name]) => !STRUCTURE.includes(name))
  return fields.map(([, value]) => textOfArguments(value)).join('')
}

/** Return whether the arguments are a non-empty object; some servers send `{}` first. */
function isWhole({ object, arguments: parts }: Call): boolean {
  object.read(parts)
  const value = object.isWhole ? parse(parts.join('')) : undefined
  return isObject(value) && !isEmpty(value)
}

/** Return whether all have OpenAI's fields; clients reject a chunk with other annotations. */
function areCitations(annotations: unknown): boolean {
  return Array.isArray(annotations) && annotations.every(isCitation)
}

function isCitation(annotation: unknown): boolean {
  if (!isObject(annotation) || annotation.type !== 'url_citation') return false
  if (!isObject(annotation.url_citation)) return false
  const { start_index, end_index, url, title } = annotation.url_citation
  const hasPlace = typeof start_index === 'number' && typeof end_index === 'number'
  return hasPlace && typeof url === 'string' && typeof title === 'string'
}

/** Return a text, a whole number as text, or the default. */
function textOr(value: unknown, fallback: string): string {
  if (typeof value === 'string') return value || fallback
  return Number.isInteger(value) ? String(value) : fallback
}

/** Keep the digits of a number that JavaScript cannot represent. */
function exactly(_key: string, value: unknown, { source }: { source: string }): unknown {
  return typeof value === 'number' && String(value) !== source ? rawJSON(source) : value
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isMissing(value: unknown): boolean {
  return value === undefined || value === null
}

function isEmpty(value: unknown): boolean {
  return typeof value === 'object' && value ? Object.keys(value).length === 0 : !value
}
