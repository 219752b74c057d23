// The HTTP contract: POST /invocations and GET /ping, as AgentCore Runtime has them.

import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

import { Hono } from 'hono'

import { AgentError, type Ask, describe, isBlank, log } from './contract.ts'
import { SESSION_HEADER, SESSION_ID } from './contract.ts'
import type { Parts } from './parts.ts'
import { readAsk, readHeader, refuseForeign, wantsEvents } from './requests.ts'
import { takeTurn } from './turn.ts'

type Chunks = ReadableStreamDefaultReader<string>

/** The turns that run or wait in this process, each a task of its own. */
export class Turns {
  readonly tasks = new Map<Promise<unknown>, AbortController>()
  changed = now()
  isDraining = false

  /** Begin this work, which `stop` ends. */
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

export function createApp(parts: Parts, turns: Turns): Hono<{ Variables: { id: string } }> {
  const app = new Hono<{ Variables: { id: string } }>()
  app.get('/ping', ({ req }) => {
    refuseForeign(req.raw, parts)
    const status = turns.tasks.size > 0 || parts.isWaiting ? 'HealthyBusy' : 'Healthy'
    return Response.json({ status, time_of_last_update: turns.changed })
  })
  app.post('/invocations', async (context) => {
    const request = context.req.raw
    const given = readHeader(request, SESSION_HEADER)
    const id = given ?? randomUUID()
    context.set('id', id)
    refuseForeign(request, parts)
    if (turns.isDraining) throw new AgentError('draining')
    const ask = await readAsk(request, parts, id, given === null)
    const response = await relay(request, turns, parts, ask)
    response.headers.set(SESSION_HEADER, id)
    return response
  })
  for (const [path, allow] of Object.entries({ '/ping': 'GET, HEAD', '/invocations': 'POST' })) {
    app.all(path, () => fail(new AgentError('method_not_allowed'), { Allow: allow }))
  }
  app.notFound(() => fail(new AgentError('not_found')))
  app.onError((error, context) => {
    const id = context.get('id') ?? ''
    return fail(error, SESSION_ID.test(id) ? { [SESSION_HEADER]: id } : {})
  })
  return app
}

/** Run what is asked for, hand on what it says, and end it when the client leaves. */
async function relay(request: Request, turns: Turns, parts: Parts, ask: Ask): Promise<Response> {
  const { readable, writable } = new TransformStream<string, string>({}, { highWaterMark: 64 })
  const writer = writable.getWriter()
  const emit = async (chunk: string): Promise<void> => {
    await writer.ready
    writer.write(chunk).catch(() => {}) // nobody reads any more, and the turn is told so
  }
  const stop = new AbortController()
  const leave = () => stop.abort(new AgentError('draining')) // which nobody reads
  if (request.signal.aborted) leave()
  request.signal.addEventListener('abort', leave)
  const turn = turns.start(run(parts, ask, emit, stop.signal), stop)
  const close = () => writer.close().catch(() => {})
  turn.then(close, close)
  const chunks = readable.getReader()
  const isStream = wantsEvents(request)
  let held = ''
  for (let next = await chunks.read(); !next.done; next = await chunks.read()) {
    held += isStream ? event('', next.value) : ''
    if (isStream && !isBlank(next.value)) {
      // Until then a failure is a status.
      const headers = { 'Content-Type': 'text/event-stream; charset=utf-8' }
      const body = ReadableStream.from(events(held, chunks, turn))
      return new Response(body.pipeThrough(new TextEncoderStream()), { headers })
    }
  }
  return Response.json(await turn)
}

async function run(
  parts: Parts,
  ask: Ask,
  emit: (chunk: string) => Promise<void>,
  signal: AbortSignal,
): Promise<object> {
  const session_id = ask.sessionId
  try {
    if (ask.prompt === null) {
      await parts.sessions.open(ask, signal, (session) => session.end())
      return { session_id, ended: true }
    }
    const { turn, reply } = await takeTurn(parts, ask, emit, signal)
    log('INFO', `session ${session_id}: turn ${turn}`)
    return { session_id, turn, reply }
  } catch (error) {
    if (error instanceof AgentError && !signal.aborted) {
      log('WARNING', `session ${session_id}: ${error.type} ${error.detail}`)
    }
    throw error
  }
}

async function* events(held: string, chunks: Chunks, turn: Promise<object>): AsyncGenerator<string> {
  yield held
  for (let next = await chunks.read(); !next.done; next = await chunks.read()) {
    yield event('', next.value)
  }
  try {
    const { reply: _, ...done } = (await turn) as { reply: string }
    yield event('event: done\n', done)
  } catch (error) {
    yield event('event: error\n', asFailure(error).body)
  }
}

function event(name: string, data: unknown): string {
  return `${name}data: ${JSON.stringify(data)}\n\n`
}

function fail(error: unknown, headers: Record<string, string> = {}): Response {
  const { body, status } = asFailure(error)
  return Response.json(body, { status, headers })
}

function asFailure(error: unknown): AgentError {
  if (error instanceof AgentError) return error
  // Its kind and where it arose, not its text, which may quote a prompt.
  const { message = '', stack = '' } = error instanceof Error ? error : {}
  log('ERROR', `${describe(error)}\n${stack.replace(message, '')}`)
  return new AgentError('internal_error')
}

function now(): number {
  return Math.floor(Date.now() / 1000)
}
