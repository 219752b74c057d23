// The HTTP contract: POST /invocations and GET /ping, as AgentCore Runtime has them.

import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

import { AgentError, type Ask, describe, isBlank, log } from './contract.ts'
import { SESSION_HEADER, SESSION_ID } from './contract.ts'
import type { Parts } from './parts.ts'
import { readAsk, readHeader, refuseForeign, wantsEvents } from './requests.ts'
import { takeTurn } from './turn.ts'

type Exchange = { request: IncomingMessage; response: ServerResponse }
type Emit = (chunk: string) => Promise<void>

const EVENT_STREAM = 'text/event-stream; charset=utf-8'
const METHODS: Record<string, string> = { '/ping': 'GET, HEAD', '/invocations': 'POST' }

/** The turns that run or wait in this process, each a task of its own. */
export class Turns {
  readonly tasks = new Map<Promise<unknown>, AbortController>()
  changed = now()
  isDraining = false

  /** Take note of work that has begun, and that `stop` ends. */
  start<T>(work: Promise<T>, stop: AbortController): Promise<T> {
    const task = work.finally(() => {
      this.tasks.delete(task)
      this.changed = now()
    })
    this.tasks.set(task, stop)
    this.changed = now()
    return task
  }

  /** Take no new turn, give those that run this time to end, and cancel the others. */
  async drain(graceSeconds: number): Promise<void> {
    this.isDraining = true
    while (this.tasks.size > 0) {
      const grace = sleep(graceSeconds * 1000, null, { ref: false })
      await Promise.race([Promise.allSettled(this.tasks.keys()), grace])
      for (const stop of this.tasks.values()) stop.abort(new AgentError('draining'))
    }
  }
}

export function createApp(parts: Parts, turns: Turns): RequestListener {
  async function route({ request, response }: Exchange): Promise<void> {
    const path = request.url?.split('?')[0] ?? ''
    const allowed = METHODS[path]
    if (!allowed) throw new AgentError('not_found')
    if (!allowed.split(', ').includes(request.method ?? '')) {
      response.setHeader('Allow', allowed)
      throw new AgentError('method_not_allowed')
    }
    await (path === '/ping' ? ping : invocations)({ request, response })
  }

  async function ping({ request, response }: Exchange): Promise<void> {
    refuseForeign(request, parts)
    const status = turns.tasks.size > 0 || parts.isWaiting ? 'HealthyBusy' : 'Healthy'
    send(response, { status, time_of_last_update: turns.changed })
  }

  async function invocations({ request, response }: Exchange): Promise<void> {
    const given = readHeader(request, SESSION_HEADER)
    const sessionId = given ?? randomUUID()
    if (SESSION_ID.test(sessionId)) response.setHeader(SESSION_HEADER, sessionId)
    refuseForeign(request, parts)
    if (turns.isDraining) throw new AgentError('draining')
    await relay({ request, response }, await readAsk(request, parts, sessionId, given === null))
  }

  /** Run what is asked for, hand on what it says, and end it when the client leaves. */
  async function relay({ request, response }: Exchange, ask: Ask): Promise<void> {
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
    const result = await turns.start(run(ask, emit, stop.signal), stop)
    if (!response.headersSent) send(response, result)
    else response.end(event('event: done\n', { ...result, reply: undefined }))
  }

  async function run(ask: Ask, emit: Emit, signal: AbortSignal): Promise<object> {
    try {
      if (ask.prompt !== null) {
        const { turn, reply } = await takeTurn(parts, ask, emit, signal)
        return { session_id: ask.sessionId, turn, reply }
      }
      await parts.sessions.open(ask, signal, (session) => session.end())
      return { session_id: ask.sessionId, ended: true }
    } catch (error) {
      if (error instanceof AgentError) {
        log('WARNING', `session ${ask.sessionId}: ${error.type} ${error.detail}`)
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
    // Its kind and where it arose, not its text, which may quote a prompt.
    const { message = '', stack = '' } = error instanceof Error ? error : {}
    log('ERROR', `${describe(error)}\n${stack.replace(message, '')}`)
  }
  const { body, status } = failure
  if (response.headersSent) response.end(event('event: error\n', body))
  else send(response, body, status)
}

function now(): number {
  return Math.floor(Date.now() / 1000)
}
