// The HTTP contract of AgentCore Runtime: POST /invocations and GET /ping.

import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

import { AgentError, type Chunk, describe, type Emit, type EndSession } from './contract.ts'
import { isBlank, log, SESSION_HEADER, SESSION_ID } from './contract.ts'
import { TurnReport, type TurnRequest } from './contract.ts'
import { authorize, pathOf, readCall, readHeader, refuseForeign } from './requests.ts'
import { wantsEvents } from './requests.ts'
import { type Handler, ROUTES } from './routes.ts'
import type { Runtime } from './runtime.ts'
import { splitList } from './settings.ts'
import { takeTurn } from './turn.ts'
import { logged } from './turn_log.ts'

export type Exchange = { request: IncomingMessage; response: ServerResponse }
type Call = TurnRequest | EndSession

const EVENT_STREAM = 'text/event-stream; charset=utf-8'

/** The turns that run or wait in this process, and the reads of bodies and sessions. */
export class Turns {
  readonly tasks = new Map<Promise<unknown>, AbortController>()
  changed = now()
  isDraining = false
  #reads = 0

  /** Throw AgentError when no turn may start: `draining` or `server_busy`. */
  checkRoom(maxTurns: number): void {
    if (this.isDraining) throw new AgentError('draining')
    if (this.tasks.size + this.#reads >= maxTurns) throw new AgentError('server_busy')
  }

  /** Take the place of a turn while a body or a session is read, or throw AgentError. */
  async reading<T>(maxTurns: number, read: () => Promise<T>): Promise<T> {
    this.checkRoom(maxTurns)
    this.#reads++
    return read().finally(() => this.#reads--)
  }

  /** Register a started turn, which `stop` cancels. */
  start<T>(work: Promise<T>, stop: AbortController): Promise<T> {
    const task = work.finally(() => {
      this.tasks.delete(task)
      this.changed = now()
    })
    this.tasks.set(task, stop)
    this.changed = now()
    return task
  }

  /** Refuse new turns, let running ones finish within this time, then cancel them. */
  async drain(graceSeconds: number): Promise<void> {
    this.isDraining = true
    while (this.tasks.size > 0) {
      const grace = sleep(graceSeconds * 1000, null, { ref: false })
      await Promise.race([Promise.allSettled(this.tasks.keys()), grace])
      for (const stop of this.tasks.values()) stop.abort(new AgentError('draining'))
    }
  }
}

/** A reply as the server-sent events of POST /invocations. */
export class Events {
  /** Return what comes first; with nothing a failure before the first text is a status. */
  start(): string {
    return ''
  }

  /** Return the event of what the turn says, or nothing. */
  chunk(chunk: Chunk): string {
    return typeof chunk === 'string' ? event('', chunk) : ''
  }

  /** Return the event of a committed turn. */
  done(result: object, _report: TurnReport): string {
    return event('event: done\n', { ...result, reply: undefined })
  }

  /** Return the event of a turn that failed; nothing of it was kept. */
  error({ type, message }: AgentError): string {
    return event('event: error\n', { error: { type, message } })
  }
}

export type Routes = Record<string, (exchange: Exchange) => Promise<void>>

export function createApp(runtime: Runtime, turns: Turns, more: Routes = {}): RequestListener {
  const pages = splitList(runtime.settings.allowedOrigins)

  /** Answer a listed page as CORS asks; return whether that was all. */
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

  function checked(handler: Handler) {
    return async ({ request, response }: Exchange): Promise<void> => {
      refuseForeign(request, runtime)
      authorize(request, runtime)
      await handler(request, response, runtime)
    }
  }

  const own = Object.entries(ROUTES).map(([name, handler]) => [name, checked(handler)])
  const routes: Routes = {
    ...more,
    ...Object.fromEntries(own),
    'GET /ping': ping,
    'POST /invocations': invocations,
  }

  async function route({ request, response }: Exchange): Promise<void> {
    if (answerPage({ request, response })) return
    const sent = pathOf(request)
    const path = sent.replace(/^(\/api\/chat)\/[^/]+(\/stream)$/, '$1/{id}$2')
    const handle = routes[`${request.method?.replace(/^HEAD$/, 'GET')} ${path}`]
    if (handle) return handle({ request, response })
    const allowed = Object.keys(routes).filter((name) => name.split(' ')[1] === path)
    if (allowed.length === 0) throw new AgentError('not_found')
    const methods = allowed.map((name) => name.split(' ')[0]).join(', ')
    response.setHeader('Allow', methods.replace('GET', 'GET, HEAD'))
    throw new AgentError('method_not_allowed')
  }

  async function ping({ request, response }: Exchange): Promise<void> {
    refuseForeign(request, runtime)
    const status = turns.tasks.size > 0 || runtime.isWaiting ? 'HealthyBusy' : 'Healthy'
    send(response, { status, time_of_last_update: turns.changed })
  }

  async function invocations({ request, response }: Exchange): Promise<void> {
    const given = readHeader(request, SESSION_HEADER)
    const sessionId = given ?? randomUUID()
    if (SESSION_ID.test(sessionId)) response.setHeader(SESSION_HEADER, sessionId)
    refuseForeign(request, runtime)
    authorize(request, runtime)
    const call = await turns.reading(runtime.settings.maxTurns, () =>
      readCall(request, runtime, sessionId, given === null),
    )
    turns.checkRoom(runtime.settings.maxTurns) // others started meanwhile
    const events = wantsEvents(request) ? new Events() : null
    await relay({ request, response }, turns, runtime, call, events)
  }

  return (request, response) => {
    route({ request, response }).catch((error) => fail({ request, response }, error))
  }
}

/**
 * Run what was requested, relay its output, and cancel it when the client leaves.
 *
 * Without `events` the reply is JSON.
 */
export async function relay(
  { request, response }: Exchange,
  turns: Turns,
  runtime: Runtime,
  call: Call,
  events: Events | null,
): Promise<void> {
  const [stop, report] = [new AbortController(), new TurnReport()]
  response.once('close', () => stop.abort())
  let held = ''
  async function write(text: string): Promise<void> {
    if (!response.headersSent) response.setHeader('Content-Type', EVENT_STREAM)
    if (!response.write(text)) await once(response, 'drain', { signal: stop.signal })
  }
  const emit: Emit = async (chunk) => {
    if (!events) return
    held += events.chunk(chunk)
    // Until the first text a failure is a status.
    if (!response.headersSent && (typeof chunk !== 'string' || isBlank(chunk))) return
    const text = held
    held = ''
    if (text) await write(text)
  }
  try {
    if (events?.start()) await write(events.start())
    const result = await turns.start(run(runtime, call, emit, stop.signal, report), stop)
    if (events && response.headersSent) response.end(events.done(result, report))
    else send(response, result)
  } catch (error) {
    if (!events || !response.headersSent || request.socket.destroyed) throw error
    response.end(events.error(failureOf(error)))
  }
}

async function run(
  runtime: Runtime,
  call: Call,
  emit: Emit,
  signal: AbortSignal,
  report: TurnReport,
): Promise<object> {
  if ('prompt' in call) {
    const take = () => takeTurn(runtime, call, emit, signal, report)
    const { turn, reply, restarted } = await logged(call, signal, report, take)
    return { session_id: call.sessionId, turn, reply, restarted }
  }
  try {
    await runtime.sessions.open(call.sessionId, call.actor, signal, (session) => session.end())
    return { session_id: call.sessionId, ended: true }
  } catch (error) {
    if (error instanceof AgentError) {
      log('WARNING', `session ${call.sessionId}: not ended: ${error.type} ${error.detail}`)
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

/** Return an error as the caller may see it; the log has the kind and place of an unknown one. */
function failureOf(error: unknown): AgentError {
  if (error instanceof AgentError) return error
  // Not its text, which may quote a prompt.
  const { message: text = '', stack = '' } = error instanceof Error ? error : {}
  log('ERROR', `${describe(error)}\n${stack.replace(text, '')}`)
  return new AgentError('internal_error')
}

function now(): number {
  return Math.floor(Date.now() / 1000)
}
