// The HTTP contract of AgentCore Runtime: POST /invocations and GET /ping.

import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

import { AgentError, describe, type EndSession, isBlank, log } from './contract.ts'
import { SESSION_HEADER, SESSION_ID, type TurnReport, type TurnRequest } from './contract.ts'
import { authorize, readCall, readHeader, refuseForeign, wantsEvents } from './requests.ts'
import { type Handler, ROUTES } from './routes.ts'
import type { Runtime } from './runtime.ts'
import { splitList } from './settings.ts'
import { takeTurn } from './turn.ts'
import { logged } from './turn_log.ts'

type Exchange = { request: IncomingMessage; response: ServerResponse }
type Call = TurnRequest | EndSession
type Emit = (chunk: string) => Promise<void>

const EVENT_STREAM = 'text/event-stream; charset=utf-8'

/** The turns that run or wait in this process, each in its own task. */
export class Turns {
  readonly tasks = new Map<Promise<unknown>, AbortController>()
  changed = now()
  isDraining = false

  /** Throw AgentError when no turn may start: `draining` or `server_busy`. */
  checkRoom(maxTurns: number): void {
    if (this.isDraining) throw new AgentError('draining')
    if (this.tasks.size >= maxTurns) throw new AgentError('server_busy')
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

export function createApp(runtime: Runtime, turns: Turns): RequestListener {
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
  const routes: Record<string, (exchange: Exchange) => Promise<void>> = {
    ...Object.fromEntries(own),
    'GET /ping': ping,
    'POST /invocations': invocations,
  }

  async function route({ request, response }: Exchange): Promise<void> {
    if (answerPage({ request, response })) return
    const path = request.url?.split('?')[0] ?? ''
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
    turns.checkRoom(runtime.settings.maxTurns)
    const call = await readCall(request, runtime, sessionId, given === null)
    turns.checkRoom(runtime.settings.maxTurns) // others started meanwhile
    await relay({ request, response }, call)
  }

  /** Run what was requested, relay its output, and cancel it when the client leaves. */
  async function relay({ request, response }: Exchange, call: Call): Promise<void> {
    const stop = new AbortController()
    response.once('close', () => stop.abort())
    const isStream = wantsEvents(request)
    let held = ''
    const emit: Emit = async (chunk) => {
      held += isStream ? event('', chunk) : ''
      // Until the first text a failure is a status.
      if (!isStream || (isBlank(chunk) && !response.headersSent)) return
      if (!response.headersSent) response.setHeader('Content-Type', EVENT_STREAM)
      const hasRoom = response.write(held)
      held = ''
      if (!hasRoom) await once(response, 'drain', { signal: stop.signal })
    }
    const result = await turns.start(run(call, emit, stop.signal), stop)
    if (!response.headersSent) send(response, result)
    else response.end(event('event: done\n', { ...result, reply: undefined }))
  }

  async function run(call: Call, emit: Emit, signal: AbortSignal): Promise<object> {
    if ('prompt' in call) {
      const take = (report: TurnReport) => takeTurn(runtime, call, emit, signal, report)
      const { turn, reply } = await logged(call, signal, take)
      return { session_id: call.sessionId, turn, reply }
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

  return (request, response) => {
    route({ request, response }).catch((error) => fail({ request, response }, error))
  }
}

function event(name: string, data: unknown): string {
  return `${name}data: ${JSON.stringify(data)}\n\n`
}

function send(response: ServerResponse, body: object, status = 200): void {
  response.statusCode = status
  response.setHeader('Content-Type', 'application/json')
  response.end(JSON.stringify(body))
}

function fail({ request, response }: Exchange, error: unknown): void {
  if (request.socket.destroyed) return // the client has left
  const failure = error instanceof AgentError ? error : new AgentError('internal_error')
  if (failure !== error) {
    // Only its kind and place: its text may quote a prompt.
    const { message: text = '', stack = '' } = error instanceof Error ? error : {}
    log('ERROR', `${describe(error)}\n${stack.replace(text, '')}`)
  }
  const { type, status, message } = failure
  if (status === 401) response.setHeader('WWW-Authenticate', 'Bearer')
  const body = { error: { type, message } }
  if (type === 'server_busy' && !response.headersSent) response.setHeader('Retry-After', '1')
  if (response.headersSent) response.end(event('event: error\n', body))
  else send(response, body, status)
}

function now(): number {
  return Math.floor(Date.now() / 1000)
}
