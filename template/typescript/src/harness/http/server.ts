// The HTTP contract of AgentCore Runtime: POST /invocations and GET /ping.

import { once } from 'node:events'
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'

import type { Capability } from '../capability.ts'
import { AgentError, type Change, type Chunk, Data, isBlank, Reasoning } from '../contract.ts'
import { SESSION_HEADER, Source, Turn, TurnRequest, type TurnResult } from '../contract.ts'
import { refuseErrors } from '../findings.ts'
import { asAgentError, log } from '../log.ts'
import { checkAccess, findActor, parseJson, pathOf, readCall } from './requests.ts'
import { receive, wantsEvents } from './requests.ts'
import { checkRoutes, type Handler, type Route, route } from '../modules.ts'
import type { Routes, Runtime } from '../modules.ts'
import { serialize } from '../sessions/sessions.ts'
import { splitList } from '../settings.ts'

/** The running agent with its capabilities. */
type ServedRuntime = Runtime & { readonly capabilities: readonly Capability[] }

/** Answers a request, or throws AgentError. */
type Answer = (request: IncomingMessage, response: ServerResponse) => void | Promise<void>

const KEEP_ALIVE = ': keep-alive\n\n' // an SSE comment, sent because proxies close idle connections

/** The headers of each stream. X-Accel-Buffering stops nginx from buffering the reply. */
export const STREAM_HEADERS = {
  'Content-Type': 'text/event-stream; charset=utf-8',
  'Cache-Control': 'no-cache',
  'X-Accel-Buffering': 'no',
}

/** A reply as the server-sent events of POST /invocations. */
export class Events {
  readonly headers: Record<string, string> = STREAM_HEADERS

  /**
   * Return the opening events.
   *
   * If this is empty, a failure before the first text is reported as an HTTP status.
   */
  formatStart(): string {
    return ''
  }

  /** Return the event for a chunk, or an empty string. */
  formatChunk(chunk: Chunk, _turn: Turn): string {
    if (chunk instanceof Reasoning) return event('event: reasoning\n', chunk.text)
    if (chunk instanceof Data) return event('event: data\n', chunk)
    if (chunk instanceof Source) return event('event: source\n', chunk)
    return typeof chunk === 'string' ? event('', chunk) : ''
  }

  /** Return the event of a committed or waiting turn. */
  formatResult(result: TurnResult, _turn: Turn): string {
    const name = result.waiting.length > 0 ? 'waiting' : 'done'
    return event(`event: ${name}\n`, { ...bodyOf(result), reply: undefined })
  }

  /** Return the event of a failed turn. */
  async formatError({ type, message }: AgentError): Promise<string> {
    return event('event: error\n', { error: { type, message } })
  }
}

/** Return the app: its routes come from the contract, the project and the capabilities. */
export function createApp(runtime: ServedRuntime, ownRoutes: Routes): RequestListener {
  const allowedOrigins = splitList(runtime.settings.allowedOrigins)
  const routes: Record<string, Answer> = {}

  /** Add routes whose requests are checked before the handler runs. */
  function add(newRoutes: Routes, isPublic = false): void {
    for (const [name, entry] of Object.entries(newRoutes)) {
      routes[name] ??= answerOf(entry, runtime, patternOf(name), isPublic)
    }
  }

  for (const path of ['/invocations', '/invocations/']) {
    routes[`POST ${path}`] = (request, response) => invoke(request, response, runtime)
  }
  routes['GET /ping'] = answerOf(ping, runtime, '/ping', true)
  add(ownRoutes)
  for (const capability of runtime.capabilities) {
    const own = capability.routes?.() ?? {}
    const open = capability.publicRoutes?.() ?? {}
    refuseErrors(checkRoutes({ ...own, ...open }, 'environment'))
    add(own)
    add(open, true)
  }

  /** Set CORS headers for ALLOWED_ORIGINS; return whether this answered a preflight request. */
  function handleCors(request: IncomingMessage, response: ServerResponse): boolean {
    const { origin, 'access-control-request-headers': headers = '' } = request.headers
    if (!origin || !allowedOrigins.includes(origin)) return false
    response.setHeader('Access-Control-Allow-Origin', origin).setHeader('Vary', 'Origin')
    const exposedHeaders = `${SESSION_HEADER}, Retry-After, WWW-Authenticate`
    response.setHeader('Access-Control-Expose-Headers', exposedHeaders)
    if (request.method !== 'OPTIONS') return false
    response.setHeader('Access-Control-Allow-Methods', methodsOf(namesOf(request)))
    response.setHeader('Access-Control-Allow-Headers', headers).end('OK')
    return true
  }

  /** Return the route names of a path. */
  function namesOf(request: IncomingMessage): string[] {
    const path = pathOf(request)
    return Object.keys(routes).filter((name) => paramsOf(patternOf(name), path))
  }

  async function respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const method = request.method?.replace(/^HEAD$/, 'GET')
    const names = namesOf(request)
    const route = names.find((name) => name.startsWith(`${method} `))
    if (route) return void (await routes[route]!(request, response))
    if (names.length === 0) throw new AgentError('not_found')
    response.setHeader('Allow', methodsOf(names))
    throw new AgentError('method_not_allowed')
  }

  const wrap = (app: RequestListener, capability: Capability) => capability.wrap?.(app) ?? app
  const last = runtime.capabilities.filter(({ wrapsLast }) => wrapsLast)
  const others = runtime.capabilities.filter(({ wrapsLast }) => !wrapsLast)
  const inner = last.reduceRight(wrap, withErrorResponses(respond))
  const app = withErrorResponses(others.reduceRight(wrap, withErrorResponses(inner)))
  return (request, response) => handleCors(request, response) || app(request, response)
}

/** Return a function that checks a request, then calls the handler. */
function answerOf(
  entry: Handler | Route,
  runtime: Runtime,
  pattern: string,
  isPublic: boolean,
): Answer {
  const { handler, types, ...options } = typeof entry === 'function' ? route(entry) : entry
  const needsToken = !isPublic && !options.public
  const { maxBytes = runtime.settings.maxBodyBytes } = options
  return async (request, response) => {
    checkAccess(request, runtime, needsToken, types)
    let bytes: Promise<Uint8Array> | undefined
    const body = () => (bytes ??= runtime.turns.reading(() => receive(request, maxBytes)))
    const call = {
      actor: needsToken ? findActor(request) : null,
      params: paramsOf(pattern, pathOf(request)) ?? {},
      body,
      json: async () => parseJson(await body()),
    }
    const work = async () => handler(request, response, runtime, call)
    await work().catch((error) => {
      const failure = asAgentError(error)
      throw failure === error ? error : new AgentError('internal_error', 'Internal error.')
    })
  }
}

/** Wrap an app so that its errors become responses. */
function withErrorResponses(app: RequestListener): RequestListener {
  return (request, response) => {
    const work = async () => app(request, response)
    work().catch((error) => fail(response, error))
  }
}

const ping: Handler = (_, response, runtime) => {
  const { turns } = runtime
  const isBusy = turns.tasks.size > 0 || runtime.isBusy
  const status = isBusy ? 'HealthyBusy' : 'Healthy'
  if (turns.isDraining) response.setHeader('X-Draining', '1')
  send(response, { status, time_of_last_update: turns.since(status) })
}

async function invoke(
  request: IncomingMessage,
  response: ServerResponse,
  runtime: Runtime,
): Promise<void> {
  const call = await readCall(request, response, runtime)
  const events = wantsEvents(request) ? new Events() : null
  if (call instanceof TurnRequest) return relay(response, runtime, call, events)
  const stop = new AbortController()
  response.once('close', () => stop.abort())
  send(response, await runtime.turns.start(stop, () => change(runtime, call, stop)))
}

/** Return the methods of routes as a header value. */
function methodsOf(names: string[]): string {
  const methods = [...new Set(names.map((name) => name.split(' ')[0]))].join(', ')
  return methods.replace('GET', 'GET, HEAD')
}

/** Return the path of a route name, such as `GET /orders/{id}`. */
function patternOf(name: string): string {
  return name.split(' ')[1] ?? ''
}

/** Return the named segments of a path; undefined if the pattern does not match. */
function paramsOf(pattern: string, path: string): Record<string, string> | undefined {
  const parts = pattern.split('/')
  const segments = path.split('/')
  const start = parts.findIndex((part) => part.endsWith(':path}'))
  const count = segments.length - parts.length + 1
  if (start >= 0 && count > 1) {
    const joined = segments.slice(start, start + count).join('/')
    segments.splice(start, count, joined)
  }
  if (parts.length !== segments.length) return undefined
  const params: Record<string, string> = {}
  for (const [index, part] of parts.entries()) {
    const segment = segments[index]!
    const name = /^\{(\w+)(:path)?\}$/.exec(part)?.[1]
    if (name === undefined ? part !== segment : segment === '') return undefined
    if (name !== undefined) params[name] = segment
  }
  return params
}

/**
 * Run a turn, relay its output, and cancel it if the client disconnects.
 *
 * If `events` is null, the reply is JSON. After KEEP_ALIVE_SECONDS of silence, a stream sends a
 * comment. Comments are sent only after the turn has begun, because any output sets the status to
 * 200.
 */
export async function relay(
  response: ServerResponse,
  runtime: Runtime,
  request: TurnRequest,
  events: Events | null,
): Promise<void> {
  const stop = new AbortController()
  const { signal } = stop
  response.once('close', () => response.writableFinished || stop.abort())
  if (!events) return send(response, bodyOf(await runtime.start(new Turn(request), { signal })))
  const headers = new Map(Object.entries(events.headers))
  let buffered = ''
  let lastSent = performance.now()
  async function write(text: string): Promise<void> {
    if (!response.headersSent) response.setHeaders(headers)
    lastSent = performance.now()
    if (!response.write(text)) await once(response, 'drain', { signal })
  }
  const silence = runtime.settings.keepAliveSeconds * 1000
  function keepAlive(): void {
    const isSilent = performance.now() - lastSent >= silence
    const canBegin = response.headersSent || turn.hasBegun
    const isClientReading = !signal.aborted && !response.writableNeedDrain
    if (isSilent && canBegin && isClientReading) write(KEEP_ALIVE).catch(() => {})
  }
  const turn = new Turn(request, async (chunk) => {
    buffered += events.formatChunk(chunk, turn)
    // Before the first visible event, a failure can still be an HTTP status.
    const isShown = typeof chunk === 'string' ? !isBlank(chunk) : !('id' in chunk)
    if (!response.headersSent && !isShown) return
    const text = buffered
    buffered = ''
    if (text) await write(text)
  })
  async function opening(): Promise<void> {
    const text = events?.formatStart()
    if (text) await write(text)
  }
  const clock = setInterval(keepAlive, silence / 10)
  try {
    const result = await runtime.start(turn, { signal, opening })
    // A waiting turn may have no text.
    if (!response.headersSent) response.setHeaders(headers)
    response.end(buffered + events.formatResult(result, turn))
  } catch (error) {
    if (!response.headersSent || response.req.socket.destroyed) throw error
    response.end(await events.formatError(asAgentError(error)))
  } finally {
    clearInterval(clock)
  }
}

/** Return the response body of a turn; a waiting turn has no reply. */
function bodyOf({ sessionId, turn, model, reply, output, waiting, marks }: TurnResult): object {
  const body = { session_id: sessionId, turn }
  const flags = Object.fromEntries(marks.map((mark) => [mark, true]))
  const named = model && { model } // a replay calls no model
  if (waiting.length === 0) return { ...body, ...named, reply, output, ...flags }
  const calls = waiting.map(({ id, name, input }) => ({ id, tool: name, input }))
  return { ...body, waiting: calls, ...flags }
}

async function change(runtime: Runtime, call: Change, stop: AbortController): Promise<object> {
  const { sessions } = runtime
  const { sessionId, actor, fork, turns } = call
  try {
    await runtime.beforeChange(call)
    if (fork) {
      await sessions.fork(call, stop.signal)
      return { session_id: sessionId, fork, turn: turns }
    }
    await sessions.end(sessionId, actor, stop)
    return { session_id: sessionId, ended: true }
  } catch (error) {
    if (error instanceof AgentError) {
      const action = fork ? 'forked' : 'ended'
      log('WARNING', `session ${sessionId}: not ${action}: ${error.type} ${error.detail}`.trimEnd())
    }
    throw error
  }
}

function event(name: string, data: unknown): string {
  return `${name}data: ${serialize(data)}\n\n`
}

/**
 * Send a JSON object.
 *
 * @public
 */
export function send(response: ServerResponse, body: object, status = 200): void {
  response.statusCode = status
  response.setHeader('Content-Type', 'application/json')
  response.setHeader('X-Content-Type-Options', 'nosniff')
  response.end(serialize(body))
}

function fail(response: ServerResponse, error: unknown): void {
  if (response.req.socket.destroyed) return // the client has disconnected
  const { type, status, message, retryAfter } = asAgentError(error)
  if (response.headersSent) return void response.destroy() // the client detects the cut
  if (status === 401) response.setHeader('WWW-Authenticate', 'Bearer')
  if (retryAfter) response.setHeader('Retry-After', retryAfter)
  send(response, { error: { type, message } }, status)
}
