// Validates requests in the order that the HTTP contract specifies.

import { createHash, randomUUID, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'

import * as contract from '../contract.ts'
import { AgentError, type Change, TurnRequest } from '../contract.ts'
import { readFiles } from '../files.ts'
import { log } from '../log.ts'
import type { Runtime } from '../modules.ts'
import { FORM_TYPE, isForm, label, readForm } from './multipart.ts'
import { type CoreSettings, isLoopback, splitList } from '../settings.ts'

const LOOPBACK_ADDRESS = /^(https?:\/\/)?(localhost|127(\.\d+){3}|\[::1\])(:\d+)?$/i
const IP_ADDRESS = /^(\d+(\.\d+){3}|\[[\da-f:.]+\])(:\d+)?$/i
const EXCLUDES = /;\s*q\s*=\s*0(\.0*)?\s*(;|$)/ // in a media range of Accept

/** Return the value of the first of these headers that the request has, or null. */
export function readHeader(request: IncomingMessage, ...names: string[]): string | null {
  const headers = names.map((name) => request.headersDistinct[name.toLowerCase()])
  return headers.find((values) => values)?.join(', ') ?? null
}

/** Return the decoded path of a relative or absolute request URL. */
export function pathOf({ url = '' }: IncomingMessage): string {
  const path = url.replace(/^https?:\/\/[^/?#]*/i, '').split(/[?#]/)[0] ?? ''
  try {
    return decodeURIComponent(path)
  } catch {
    return path
  }
}

/** Check Host, Origin, Content-Type and token. Throws AgentError. */
export function checkAccess(
  request: IncomingMessage,
  runtime: Runtime,
  needsToken = true,
  types: readonly string[] = ['application/json'],
): void {
  refuseForeign(request, runtime, !needsToken)
  refuseType(request, types)
  if (needsToken) authorize(request, runtime)
}

function refuseForeign(request: IncomingMessage, { settings }: Runtime, isPublic: boolean): void {
  const { host = [], origin = [] } = request.headersDistinct
  // Health checks that proxies send over HTTP/1.0 have no Host header.
  const isCheck = request.httpVersion === '1.0' && pathOf(request) === '/ping'
  if (host.length !== 1 && !(isCheck && host.length === 0))
    throw new AgentError('invalid_request', 'Send one Host header.')
  const hosts = isLoopback(settings) || settings.allowedHosts ? host : []
  for (const value of hosts) {
    if (!isAllowed(value, settings.allowedHosts)) throw forbidden('ALLOWED_HOSTS', 'Host', value)
  }
  const isRead = /^(GET|HEAD) (?!\/ping$)/.test(`${request.method} ${pathOf(request)}`)
  if (isRead && hosts.length === 0 && !settings.apiToken) {
    // Same-origin GETs have no Origin, and DNS rebinding can resolve another site's name to us.
    for (const value of host) {
      const isLocal = isAllowed(value, '') || IP_ADDRESS.test(value)
      if (!isLocal) throw forbidden('ALLOWED_HOSTS', 'Host', value)
    }
  }
  // Browsers also send an Origin for a page's module scripts.
  for (const value of isPublic && isRead ? [] : origin) {
    const isListed = isAllowed(value, settings.allowedOrigins)
    if (!isListed) throw forbidden('ALLOWED_ORIGINS', 'Origin', value)
  }
}

/** Check the Content-Type of a request from a web page. Throws AgentError. */
function refuseType(request: IncomingMessage, types: readonly string[]): void {
  const { origin, 'content-type': sent = [] } = request.headersDistinct
  const isListed = sent.every((type) => types.includes(type.split(';')[0]!.trim().toLowerCase()))
  const isTyped = sent.length > 0 || request.method !== 'POST' // untyped POSTs get no preflight
  const isFromPage = origin !== undefined || !isSameSite(request)
  if (isFromPage && !(isListed && isTyped)) {
    const what = `A request from a web page needs Content-Type: ${types.join(' or ')}.`
    throw new AgentError('invalid_request', what)
  }
}

/** Whether a request without an Origin is not from a page of another site. */
function isSameSite(request: IncomingMessage): boolean {
  return ['same-origin', 'none'].includes(readHeader(request, 'Sec-Fetch-Site') ?? 'none')
}

/**
 * Return the types that a page may send to POST /invocations.
 *
 * Browsers send forms to any server without a preflight request. So only the agent's own pages
 * and those in ALLOWED_ORIGINS may send them.
 */
export function typesOf(request: IncomingMessage, { allowedOrigins }: CoreSettings): string[] {
  const { origin, host = [] } = request.headersDistinct
  const own = host.flatMap((name) => [`http://${name}`, `https://${name}`])
  const trusted = [...own.map((url) => url.toLowerCase()), ...splitList(allowedOrigins)]
  const areTrusted = origin?.every((value) => trusted.includes(value.toLowerCase()))
  const types = ['application/json']
  return (areTrusted ?? isSameSite(request)) ? [...types, FORM_TYPE] : types
}

/** Log a rejected request and return its error. */
function forbidden(setting: string, header: string, value: string): AgentError {
  const what = `${setting} does not list the ${header} "${value.slice(0, 255)}".`
  log('WARNING', `origin_forbidden: ${what}`)
  return new AgentError('origin_forbidden', what)
}

function isAllowed(value: string, listed: string): boolean {
  const name = value.toLowerCase()
  const names = [name, name.replace(/^([^/]+):\d+$/, '$1')] // any port
  const isListed = splitList(listed).some((item) => names.includes(item))
  return isListed || LOOPBACK_ADDRESS.test(value)
}

function authorize(request: IncomingMessage, { settings }: Runtime): void {
  if (!settings.apiToken) return
  // Behind a proxy with basic authentication, Authorization has the proxy's credentials.
  const token = readHeader(request, contract.TOKEN_HEADER)
  const sent = token === null ? readHeader(request, 'authorization') : `Bearer ${token}`
  const credentials = (sent ?? '').replace(/^bearer /i, 'Bearer ')
  const digest = (text: string) => createHash('sha256').update(text).digest() // of equal length
  if (!timingSafeEqual(digest(credentials), digest(`Bearer ${settings.apiToken}`))) {
    throw new AgentError('unauthorized')
  }
}

/**
 * Whether to stream: Accept contains text/event-stream or lacks application/json.
 *
 * A media range with `q=0` excludes its type (RFC 9110, section 12.4.2).
 */
export function wantsEvents(request: IncomingMessage): boolean {
  const ranges = (readHeader(request, 'accept') ?? '').toLowerCase().split(',')
  const typeOf = (range: string) => range.split(';')[0]!.trim()
  const excluded = ranges.filter((range) => EXCLUDES.test(range)).map(typeOf)
  const types = ranges.map(typeOf)
  if (types.includes('text/event-stream')) return !excluded.includes('text/event-stream')
  if (excluded.includes('text/*')) return false
  return !types.includes('application/json') || excluded.includes('application/json')
}

/** Read and validate a POST /invocations. Throws AgentError for the first failed check. */
export async function readCall(
  request: IncomingMessage,
  response: ServerResponse,
  runtime: Runtime,
): Promise<TurnRequest | Change> {
  const sentId = readHeader(request, contract.SESSION_HEADER)
  const isNew = sentId === null
  const sentIds = request.headersDistinct[contract.SESSION_HEADER.toLowerCase()] ?? []
  const sessionId = sentIds.length > 1 ? '' : (sentId ?? randomUUID())
  // Every response has the session header, even an error.
  if (contract.SESSION_ID.test(sessionId)) response.setHeader(contract.SESSION_HEADER, sessionId)
  checkAccess(request, runtime, true, typesOf(request, runtime.settings))
  const raw = await runtime.turns.reading(() => receive(request, runtime.settings.maxBodyBytes))
  contract.checkIds(sessionId, null)
  const contentType = readHeader(request, 'Content-Type') ?? ''
  const body = parseBody(raw, contentType, runtime.settings)
  const call = readBody(body, sessionId, runtime)
  if (isNew && !(call instanceof TurnRequest)) {
    throw new AgentError('invalid_request', 'Send the session id in the session header.')
  }
  const actor = readActor(request, runtime)
  const key = readHeader(request, ...contract.KEY_HEADERS)
  if (key !== null && (isNew || !contract.KEY.test(key))) {
    throw new AgentError('invalid_request', contract.INVALID_KEY)
  }
  if (!(call instanceof TurnRequest)) return { ...call, actor, key }
  return call.of({ actor, key, headers: request.headers })
}

/** Return the actor in the headers. Throws `invalid_actor` or `actor_required`. */
export function readActor(request: IncomingMessage, { actorRequired }: Runtime): string | null {
  const actor = findActor(request)
  if (actor === null && actorRequired) throw new AgentError('actor_required')
  return actor
}

/** Return the actor in the headers, or null. Throws `invalid_actor`. */
export function findActor(request: IncomingMessage): string | null {
  const actor = readHeader(request, ...contract.ACTOR_HEADERS)
  if (actor !== null && !contract.ACTOR_ID.test(actor)) throw new AgentError('invalid_actor')
  return actor
}

/** Return the body. Throws `payload_too_large` above `maxBytes`. */
export async function receive(request: IncomingMessage, maxBytes: number): Promise<Uint8Array> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    size += chunk.length
    if (size <= maxBytes) chunks.push(chunk)
    if (size > 16 * maxBytes + 2 ** 24) break // most clients read only after sending
  }
  if (size > maxBytes) {
    throw new AgentError('payload_too_large', `The body is larger than ${maxBytes} bytes.`)
  }
  return Buffer.concat(chunks)
}

/** Return the text of UTF-8; keep a byte order mark, which is not JSON. Throws TypeError. */
function decode(bytes: Uint8Array): string {
  return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
}

/** Parse JSON (RFC 8259) with at most 64 levels of nesting. Throws `invalid_json`. */
export function parseJson(body: Uint8Array): unknown {
  try {
    const text = decode(body)
    let level = 0
    let isQuoted = false
    for (let at = 0; at < text.length; at++) {
      const character = text[at]
      if (character === '\\') at++
      else if (character === '"') isQuoted = !isQuoted
      else if (!isQuoted && (character === '[' || character === '{')) level++
      else if (!isQuoted && (character === ']' || character === '}')) level--
      if (level > 64) throw new RangeError('nested too deeply')
    }
    return JSON.parse(text)
  } catch {
    throw new AgentError('invalid_json')
  }
}

/** Return the value of JSON, or a form as its fields, with `File`s. Throws AgentError. */
export function parseBody(raw: Uint8Array, contentType: string, settings: CoreSettings): unknown {
  if (!isForm(contentType)) return parseJson(raw)
  const { fields, files } = readForm(raw, contentType, settings)
  const values = new Map([...fields].map(([name, value]) => [name, readField(name, value)]))
  if (files.length > 0) values.set('files', files)
  return Object.fromEntries(values)
}

/** Return the value of a form's field: `prompt` is text, and others are JSON. */
function readField(name: string, value: Uint8Array): unknown {
  try {
    return name === 'prompt' ? decode(value) : parseJson(value)
  } catch {
    const kind = name === 'prompt' ? 'UTF-8' : 'JSON'
    const message = `The value of the field ${label(name)} is not ${kind}.`
    throw new AgentError('invalid_request', message)
  }
}

/** Parse a body; the calling function adds the values of the headers. */
function readBody(body: unknown, sessionId: string, runtime: Runtime): TurnRequest | Change {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new AgentError('invalid_request', 'The body must be an object.')
  }
  const { prompt, end_session: endSession = false, fork } = body as Record<string, unknown>
  const caller = { actor: null, key: null } // added later, from the headers
  const hasPrompt = 'prompt' in body
  const asked = runtime.readRequest(body, sessionId)
  const isTurn = asked !== undefined || hasPrompt || 'replace_turn' in body
  const isFork = (fork ?? null) !== null
  if ('at_turn' in body && !isFork) {
    throw new AgentError('invalid_request', 'Send at_turn only with fork.')
  }
  if (endSession === true && !isTurn && !isFork) {
    return { sessionId, ...caller, fork: '', turns: 0 }
  }
  if (endSession !== false) {
    throw new AgentError('invalid_request', 'Send end_session as true, in a separate request.')
  }
  if (typeof fork === 'string' && contract.SESSION_ID.test(fork) && !isTurn) {
    return { sessionId, ...caller, fork, turns: readNumber(body, 'at_turn') }
  }
  if (isFork) {
    throw new AgentError('invalid_request', 'Send fork as a session id, in a separate request.')
  }
  if (asked) return asked
  const replaces = 'replace_turn' in body ? readNumber(body, 'replace_turn') : null
  const isRepeat = replaces !== null && !hasPrompt
  const text = isRepeat ? '' : contract.checkPrompt(prompt, runtime.settings.maxPromptChars)
  const { files = [] } = body as { files?: unknown }
  const read = readFiles(files, runtime.settings)
  return new TurnRequest({ sessionId, prompt: text, replaces, files: read })
}

function readNumber(body: object, name: string): number {
  const number = (body as Record<string, unknown>)[name]
  if (typeof number === 'number' && Number.isSafeInteger(number) && number > 0) return number
  throw new AgentError('invalid_request', `Send ${name} as a turn number, 1 or higher.`)
}
