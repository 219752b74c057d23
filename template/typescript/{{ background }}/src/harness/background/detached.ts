// A request that runs without its client: its response becomes a recording.

import { AsyncLocalStorage } from 'node:async_hooks'
import { randomBytes } from 'node:crypto'
import { IncomingMessage, type RequestListener, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { StringDecoder } from 'node:string_decoder'

import { AgentError, type Turn } from '../contract.ts'
import { logUnexpected } from '../log.ts'
import { BackgroundError, errorEvent, type Format, formatError } from './failures.ts'
import { Recording } from './recording.ts'

const ACCEPT_SECONDS = 1 // of a wait for the session, until the turn is accepted

/** The detached request of the running code, if any. */
export const DETACHED = new AsyncLocalStorage<Detached>()

/** The connection of a detached request. Passes the body of the response to `use`. */
class Connection extends Duplex {
  readonly remoteAddress: string | undefined
  readonly #use: (text: string) => void
  readonly #decoder = new StringDecoder('utf8')
  #head = ''

  constructor(remoteAddress: string | undefined, use: (text: string) => void) {
    super({ writableHighWaterMark: Number.MAX_SAFE_INTEGER }) // the turn never waits
    this.remoteAddress = remoteAddress
    this.#use = use
  }

  override _read(): void {}

  override _write(chunk: Buffer, _: BufferEncoding, done: () => void): void {
    const text = this.#decoder.write(chunk)
    if (this.#head.endsWith('\r\n\r\n')) {
      this.#use(text)
    } else {
      const [head = '', ...body] = (this.#head + text).split(/(?<=\r\n\r\n)/)
      this.#head = head
      if (body.length > 0) this.#use(body.join(''))
    }
    done()
  }
}

/** Return a request whose body has been read, with these headers in addition. */
export function repeatRequest(
  request: IncomingMessage,
  body: Uint8Array,
  headers: Record<string, string> = {},
  socket: Duplex = request.socket,
): IncomingMessage {
  const repeated = new IncomingMessage(socket as Socket)
  const { method, url, httpVersion, httpVersionMajor, httpVersionMinor, rawHeaders } = request
  const fields = { method, url, httpVersion, httpVersionMajor, httpVersionMinor, rawHeaders }
  const lists = Object.entries(headers).map(([name, value]) => [name, [value]])
  Object.assign(repeated, fields, {
    headers: { ...request.headers, ...headers },
    headersDistinct: { ...request.headersDistinct, ...Object.fromEntries(lists) },
    complete: true,
  })
  repeated.push(body)
  repeated.push(null)
  return repeated
}

/** A request whose client may leave. Its response is recorded once its turn runs. */
export class Detached {
  readonly response: ServerResponse
  /** Resolves when the turn is recorded, or with null when the response ends without it. */
  readonly recorded = Promise.withResolvers<Recording | null>()
  /** Resolves when the turn is accepted, or when the response ends. */
  readonly accepted = Promise.withResolvers<void>()
  readonly ended = Promise.withResolvers<void>()
  readonly #request: IncomingMessage
  readonly #connection: Connection
  readonly #format: Format
  readonly #maxBytes: number
  #turn: Turn | null = null
  #recording: Recording | null = null
  /** The part of the body that is not recorded. */
  #text = ''

  constructor(request: IncomingMessage, body: Uint8Array, format: Format, maxBytes: number) {
    const { remoteAddress } = request.socket
    this.#connection = new Connection(remoteAddress, (text) => this.#record(text))
    const headers = { accept: 'text/event-stream' }
    this.#request = repeatRequest(request, body, headers, this.#connection)
    this.response = new ServerResponse(this.#request)
    this.response.useChunkedEncodingByDefault = false
    this.response.assignSocket(this.#connection as unknown as Socket)
    this.#format = format
    this.#maxBytes = maxBytes
  }

  /** The recording, or null before the turn runs. */
  get recording(): Recording | null {
    return this.#recording
  }

  /** Run the request. */
  run(app: RequestListener): void {
    this.response.once('finish', () => this.#end())
    this.#connection.once('close', () => this.#end())
    this.#connection.on('error', logUnexpected)
    const work = async () => DETACHED.run(this, () => app(this.#request, this.response))
    work().catch((error) => {
      if (this.#recording) logUnexpected(error)
      this.recorded.reject(error)
      this.#connection.destroy()
    })
  }

  /** Handle the start of the turn, which may still wait for its session: record its response. */
  begin(turn: Turn): void {
    if (this.#turn) return // a tool runs another turn
    this.#turn = turn
    const { sessionId, actor } = turn
    const turnId = randomBytes(12).toString('base64url')
    const recorded = { turnId, sessionId, actor, format: this.#format }
    this.#recording = new Recording(recorded, this.#maxBytes)
    this.#record('')
    this.recorded.resolve(this.#recording)
    const late = setTimeout(this.accepted.resolve, ACCEPT_SECONDS * 1000)
    void this.accepted.promise.then(() => clearTimeout(late))
  }

  /** Accept the turn: it has passed the checks of its session. */
  accept(turn: Turn): void {
    // The errors that follow at once are responses.
    if (turn === this.#turn) setImmediate(this.accepted.resolve)
  }

  /** Cancel the turn, as if its client had left. */
  stop(): void {
    this.response.emit('close')
  }

  /** Handle the end of a turn: a cancelled turn sends no event. */
  finish(turn: Turn): void {
    if (turn !== this.#turn || !this.#isCancelled) return
    this.#recording?.append(formatError(this.#format, new BackgroundError('turn_stopped')))
    this.#connection.destroy()
  }

  /** Whether the agent has rejected the turn before it began. */
  get isRejected(): boolean {
    if (!this.#recording || !this.#turn) return true
    const { hasBegun, outcome } = this.#turn
    const isRefused = !hasBegun && outcome !== 'replayed' // useChat gets status 200
    const isFailure = this.response.statusCode >= 400 || this.#isCancelled || isRefused
    return this.#recording.state === 'ended' && isFailure
  }

  /** Whether a client stopped the turn before its commit. */
  get #isCancelled(): boolean {
    return this.#turn?.outcome === 'cancelled'
  }

  /** Send the response of a rejected turn. Throws BackgroundError `turn_stopped`. */
  sendTo(response: ServerResponse): void {
    if (this.#isCancelled) throw new BackgroundError('turn_stopped')
    this.copyHead(response)
    response.end(this.#text)
  }

  /** Copy the status and the headers. */
  copyHead(response: ServerResponse): void {
    response.statusCode = this.response.statusCode
    for (const name of this.response.getHeaderNames()) {
      response.setHeader(name, this.response.getHeader(name)!)
    }
  }

  #record(text: string): void {
    this.#text += text
    if (!this.#recording) return
    const events = this.#text.split(/(?<=\n\n)/)
    const last = events.at(-1) ?? ''
    this.#text = last.endsWith('\n\n') ? '' : (events.pop() ?? '')
    this.#recording.append(...events.filter((event) => !event.startsWith(':')))
  }

  #end(): void {
    const recording = this.#recording
    if (recording?.state === 'running') {
      // A status with an error instead of events.
      if (this.#text) recording.append(errorEvent(this.#text))
      const isCut = !this.response.writableFinished && !this.#isCancelled
      if (isCut) recording.append(formatError(this.#format, new AgentError('internal_error')))
      recording.end()
    }
    this.recorded.resolve(null)
    this.accepted.resolve()
    this.ended.resolve()
    this.#connection.destroy()
  }
}
