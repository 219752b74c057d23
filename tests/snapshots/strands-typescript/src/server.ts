// The HTTP contract of AgentCore Runtime: POST /invocations and GET /ping.

import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'

import type { Routes } from './capability.ts'
import { AgentError, type Chunk, type EndSession, isBlank, SESSION_HEADER } from './contract.ts'
import { SESSION_ID, Turn } from './contract.ts'
import { log, logUnexpected } from './log.ts'
import { authorize, pathOf, readCall, readHeader, refuseForeign } from './requests.ts'
import { wantsEvents } from './requests.ts'
import { type Handler, ROUTES } from './routes.ts'
import type { Runtime } from './runtime.ts'
import { splitList } from './settings.ts'
import { takeTurn } from './turn.ts'
import { logged } from './turn_log.ts'
import type { Turns } from './turns.ts'

type Exchange = { request: IncomingMessage; response: ServerResponse }

const EVENT_STREAM = 'text/event-stream; charset=utf-8'

/** A reply as the server-sent events of POST /invocations. */
export class Events {
  /** Return the opening events. If empty, a failure before the first text is an HTTP status. */
  start(): string {
    return ''
  }

  /** Return the event for a chunk, or an empty string. */
  chunk(chunk: Chunk): string {
    return typeof chunk === 'string' ? event('', chunk) : ''
  }

  /** Return the event of a committed turn. */
  done(result: object, _turn: Turn): string {
    return event('event: done\n', { ...result, reply: undefined })
  }

  /** Return the event of a turn that failed; nothing of it was kept. */
  async error({ type, message }: AgentError): Promise<string> {
    return event('event: error\n', { error: { type, message } })
  }
}

export function createApp(runtime: Runtime, turns: Turns): RequestListener {
  const pages = splitList(runtime.settings.allowedOrigins)
  const routes = collectRoutes()

  function collectRoutes(): Routes {
    const added = runtime.capabilities.flatMap((capability) => [
      guarded(capability.publicRoutes?.(), false),
      guarded(capability.routes?.(turns)),
    ])
    const own = { 'GET /ping': ping, 'POST /invocations': invocations }
    return Object.assign({}, ...added, guarded(ROUTES), own)
  }

  /** Check Host, Origin and token before a handler is called. */
  function guarded(unguarded: Routes = {}, needsToken = true): Routes {
    const entries = Object.entries(unguarded).map(([name, handler]): [string, Handler] => [
      name,
      async (request, response) => {
        refuseForeign(request, runtime)
        if (needsToken) authorize(request, runtime)
        await handler(request, response, runtime)
      },
    ])
    return Object.fromEntries(entries)
  }

  /** Set CORS headers for a page in ALLOWED_ORIGINS; return whether it answered a preflight. */
  function answerPage({ request, response }: Exchange): boolean {
    const { origin, 'access-control-request-headers': headers = '' } = request.headers
    if (!origin || !pages.includes(origin)) return false
    response.setHeader('Access-Control-Allow-Origin', origin).setHeader('Vary', 'Origin')
    response.setHeader('Access-Control-Expose-Headers', SESSION_HEADER)
    if (request.method !== 'OPTIONS') return false
    response.setHeader('Access-Control-Allow-Methods', 'GET, POST')
    response.setHeader('Access-Control-Allow-Headers', headers).end('OK')
    return true
  }

  async function route({ request, response }: Exchange): Promise<void> {
    if (answerPage({ request, response })) return
    const [path, method] = [pathOf(request), request.method?.replace(/^HEAD$/, 'GET')]
    const same = Object.keys(routes).filter((name) => name.split(' ')[1] === path)
    const matching = Object.keys(routes).filter((name) => matches(name.split(' ')[1] ?? '', path))
    const names = same.length > 0 ? same : matching
    const found = names.find((name) => name.startsWith(`${method} `))
    if (found) return void (await routes[found]!(request, response, runtime))
    if (names.length === 0) throw new AgentError('not_found')
    const methods = [...new Set(names.map((name) => name.split(' ')[0]))].join(', ')
    response.setHeader('Allow', methods.replace('GET', 'GET, HEAD'))
    throw new AgentError('method_not_allowed')
  }

  async function ping(request: IncomingMessage, response: ServerResponse): Promise<void> {
    refuseForeign(request, runtime)
    const status = turns.tasks.size > 0 || runtime.isBusy ? 'HealthyBusy' : 'Healthy'
    send(response, { status, time_of_last_update: turns.changedAt })
  }

  async function invocations(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const sentId = readHeader(request, SESSION_HEADER)
    const sessionId = sentId ?? randomUUID()
    if (SESSION_ID.test(sessionId)) response.setHeader(SESSION_HEADER, sessionId)
    refuseForeign(request, runtime)
    authorize(request, runtime)
    const call = await turns.reading(runtime.settings.maxTurns, () =>
      readCall(request, runtime, sessionId, sentId === null),
    )
    turns.checkRoom(runtime.settings.maxTurns) // others started meanwhile
    const events = wantsEvents(request) ? new Events() : null
    if (call instanceof Turn) return relay({ request, response }, turns, runtime, call, events)
    const stop = new AbortController()
    response.once('close', () => stop.abort())
    send(response, await turns.start(endSession(runtime, call, stop.signal), stop))
  }

  const listener: RequestListener = (request, response) => {
    route({ request, response }).catch((error) => fail({ request, response }, error))
  }
  return runtime.capabilities.reduceRight(
    (app, capability) => capability.wrap?.(app) ?? app,
    listener,
  )
}

/** Whether a path has the form of a pattern, in which `{id}` matches one segment. */
function matches(pattern: string, path: string): boolean {
  const [parts, segments] = [pattern.split('/'), path.split('/')]
  const isSame = (part: string, at: number) =>
    part === segments[at] || (/^\{\w+\}$/.test(part) && segments[at])
  return parts.length === segments.length && parts.every(isSame)
}

/**
 * Run a turn, relay its output, and cancel it when the client leaves.
 *
 * Without `events` the reply is JSON.
 */
export async function relay(
  { request, response }: Exchange,
  turns: Turns,
  runtime: Runtime,
  turn: Turn,
  events: Events | null,
): Promise<void> {
  const stop = new AbortController()
  response.once('close', () => stop.abort())
  let buffered = ''
  async function write(text: string): Promise<void> {
    if (!response.headersSent) response.setHeader('Content-Type', EVENT_STREAM)
    if (!response.write(text)) await once(response, 'drain', { signal: stop.signal })
  }
  turn.emit = async (chunk) => {
    if (!events) return
    buffered += events.chunk(chunk)
    // Until the first text a failure is a status.
    if (!response.headersSent && (typeof chunk !== 'string' || isBlank(chunk))) return
    const text = buffered
    buffered = ''
    if (text) await write(text)
  }
  try {
    if (events?.start()) await write(events.start())
    const taken = logged(turn, () => takeTurn(runtime, turn, stop.signal))
    const { turn: number, reply, restarted } = await turns.start(taken, stop)
    const result = { session_id: turn.sessionId, turn: number, reply, restarted }
    if (events && response.headersSent) response.end(events.done(result, turn))
    else send(response, result)
  } catch (error) {
    if (!events || !response.headersSent || request.socket.destroyed) throw error
    response.end(await events.error(failureOf(error)))
  }
}

async function endSession(
  runtime: Runtime,
  { sessionId, actor }: EndSession,
  signal: AbortSignal,
): Promise<object> {
  try {
    await runtime.sessions.open(sessionId, actor, signal, (session) => session.end())
    return { session_id: sessionId, ended: true }
  } catch (error) {
    if (error instanceof AgentError) {
      log('WARNING', `session ${sessionId}: not ended: ${error.type} ${error.detail}`)
    }
    throw error
  }
}

function event(name: string, data: unknown): string {
  return `${name}data: ${JSON.stringify(data)}\n\n`
}

function send(response: ServerResponse, body: object, status = 200): void {
  response.statusCode = status
  response.setHeader('Content-Type', 'application/json')
  response.setHeader('X-Content-Type-Options', 'nosniff')
  response.end(JSON.stringify(body))
}

function fail({ request, response }: Exchange, error: unknown): void {
  if (request.socket.destroyed) return // the client has left
  const { type, status, message, retryAfter } = failureOf(error)
  if (response.headersSent) return void response.destroy() // the client sees that it was cut off
  if (status === 401) response.setHeader('WWW-Authenticate', 'Bearer')
  if (retryAfter) response.setHeader('Retry-After', retryAfter)
  send(response, { error: { type, message } }, status)
}

/** Return an error as the caller may see it, and log an unexpected one. */
function failureOf(error: unknown): AgentError {
  if (error instanceof AgentError) return error
  logUnexpected(error)
  return new AgentError('internal_error')
}
