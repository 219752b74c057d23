// Reading a request: the checks before a turn, in the order of the HTTP contract.

import type { IncomingMessage } from 'node:http'

import * as contract from './contract.ts'
import { AgentError, type Ask } from './contract.ts'
import type { Parts } from './parts.ts'
import { isLoopback } from './settings.ts'

const OWN_ADDRESS = /^(https?:\/\/)?(localhost|127(\.\d+){3}|\[::1\])(:\d+)?$/i

/** The value of the first of these headers that was sent, or null. */
export function readHeader(request: IncomingMessage, ...names: string[]): string | null {
  const sent = names.map((name) => request.headersDistinct[name.toLowerCase()])
  return sent.find((values) => values)?.join(', ') ?? null
}

/** Throw `origin_forbidden` when a web page from elsewhere may be talking to a local agent. */
export function refuseForeign(request: IncomingMessage, parts: Parts): void {
  const { host = [], origin = [] } = request.headersDistinct
  if (isLoopback(parts.settings) && ![...host, ...origin].every((it) => OWN_ADDRESS.test(it))) {
    throw new AgentError('origin_forbidden')
  }
}

/** Whether the reply is to be streamed: it is, unless only JSON is accepted. */
export function wantsEvents(request: IncomingMessage): boolean {
  const ranges = (readHeader(request, 'accept') ?? '').toLowerCase().split(',')
  const types = ranges.map((range) => range.split(';')[0]?.trim())
  return types.includes('text/event-stream') || !types.includes('application/json')
}

/** What is asked for; throws AgentError for the first check that fails. */
export async function readAsk(
  request: IncomingMessage,
  parts: Parts,
  sessionId: string,
  isNew: boolean,
): Promise<Ask> {
  const raw = await readBody(request, parts.settings.maxBodyBytes)
  if (!contract.SESSION_ID.test(sessionId)) throw new AgentError('invalid_session_id')
  const prompt = readPrompt(contract.parseJson(raw), parts.settings.maxPromptChars)
  if (prompt === null && isNew) {
    throw new AgentError('invalid_request', 'To end a session, name it in the session header.')
  }
  const actor = readHeader(request, ...contract.ACTOR_HEADERS)
  if (actor === null && parts.actorRequired) throw new AgentError('actor_required')
  if (actor !== null && !contract.ACTOR_ID.test(actor)) throw new AgentError('invalid_actor')
  const key = readHeader(request, ...contract.KEY_HEADERS)
  if (key !== null && (isNew || !contract.KEY.test(key))) {
    const what = 'An idempotency key is 1 to 128 visible ASCII, and needs a session header.'
    throw new AgentError('invalid_request', what)
  }
  return { sessionId, actor, key, prompt }
}

async function readBody(request: IncomingMessage, most: number): Promise<Uint8Array> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    size += chunk.length
    if (size <= most) chunks.push(chunk)
    if (size > 16 * most + 2 ** 24) break // until then it is read, so that the answer can be read
  }
  if (size > most) {
    throw new AgentError('payload_too_large', `The body is larger than ${most} bytes.`)
  }
  return Buffer.concat(chunks)
}

function readPrompt(body: unknown, maxChars: number): string | null {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new AgentError('invalid_request', 'The body must be an object.')
  }
  const { prompt, end_session: endSession = false } = body as Record<string, unknown>
  if (endSession === true && !('prompt' in body)) return null
  if (endSession !== false) {
    throw new AgentError('invalid_request', 'end_session must be true, without a prompt.')
  }
  return contract.checkPrompt(prompt, maxChars)
}
