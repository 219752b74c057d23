// The capability whose turns continue after their client has left.

import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { randomUUID } from 'node:crypto'

import { Capability, type Routes } from '../capability.ts'
import { AgentError, checkIds, SESSION_HEADER, SESSION_ID, type Turn } from '../contract.ts'
import { checkAccess, parseBody, pathOf, readActor, readHeader, typesOf } from '../http/requests.ts'
import { receive } from '../http/requests.ts'
import { send, STREAM_HEADERS } from '../http/server.ts'
import type { Handler, Modules, Runtime } from '../modules.ts'
import { InProcess } from '../sessions/session_store.ts'
import type { Session } from '../sessions/sessions.ts'
import type { CoreSettings } from '../settings.ts'
import { Detached, DETACHED, repeatRequest } from './detached.ts'
import { BackgroundError, type Format } from './failures.ts'
import { checkReader, numberAfter, stream } from './readers.ts'
import type { Recording } from './recording.ts'
import { Recordings, type Shared } from './recordings.ts'
import type { BackgroundSettings } from './settings.ts'

const PATHS = ['/invocations', '/invocations/']
const MODES = ['background', 'follow', 'stop'] as const
const OTHER_FIELDS = ['prompt', 'replace_turn', 'fork', 'end_session']
const MAX_CONTROL_BYTES = 4096 // of the body of `follow` and `stop`, even if MAX_TURNS run
const PURGE_SECONDS = 1 // between two searches for expired recordings
const SEND_SESSION = 'Send the session id in the session header.'
const NOTHING = 'This session has no background turn, or it ended more than EVENT_SECONDS ago.'

type Mode = (typeof MODES)[number]
type Fields = Record<string, unknown>

/** Runs turns without their clients, and serves their recorded events. */
export class Background extends Capability<BackgroundSettings> {
  /** Another capability may set this to share recordings with other replicas. */
  shared: Shared | null = null
  readonly #recordings: Recordings
  /** The actors of the running requests. */
  readonly #running = new Map<Detached, string | null>()
  #runtime: Runtime | null = null
  #purging: NodeJS.Timeout | undefined

  constructor(settings: BackgroundSettings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    this.#recordings = new Recordings(settings)
  }

  override async open(runtime: Runtime): Promise<void> {
    this.#runtime = runtime
    this.#purging = setInterval(() => this.#recordings.purge(), PURGE_SECONDS * 1000).unref()
  }

  override async close(): Promise<void> {
    clearInterval(this.#purging)
  }

  /** Wrappers of the project check `follow` and `stop`, and can change the path. */
  override get wrapsLast(): boolean {
    return true
  }

  override wrap(app: RequestListener): RequestListener {
    return async (request, response) => {
      const isCall = request.method === 'POST' && PATHS.includes(pathOf(request))
      if (isCall) await answer(response, () => this.#invoke(app, request, response))
      else await app(request, response)
    }
  }

  override routes(): Routes {
    const follow: Handler = async (request, response, _, { params }) => {
      const sessionId = params.session ?? ''
      checkIds(sessionId, null)
      response.setHeader(SESSION_HEADER, sessionId)
      const actor = readActor(request, this.runtime)
      await answer(response, () => this.#follow(request, response, sessionId, actor))
    }
    return { 'GET /invocations/{session:path}/events': follow }
  }

  override around(turn: Turn, run: () => Promise<unknown>): Promise<unknown> {
    DETACHED.getStore()?.begin(turn)
    return run()
  }

  override async beginTurn(_: Session, turn: Turn): Promise<undefined> {
    DETACHED.getStore()?.accept(turn)
  }

  override async ended(turn: Turn): Promise<void> {
    DETACHED.getStore()?.finish(turn)
  }

  override sessionEnded(sessionId: string): void {
    this.#recordings.forget(sessionId)
    this.shared?.forget(sessionId)
  }

  /** The running agent. */
  get runtime(): Runtime {
    return this.#runtime!
  }

  /**
   * Run a request without its client.
   *
   * Throws AgentError `server_busy` or `rate_limited`.
   */
  detach(
    app: RequestListener,
    request: IncomingMessage,
    body: Uint8Array,
    actor: string | null,
    format: Format,
  ): Detached {
    const { maxBackgroundTurns, maxBackgroundTurnsPerActor, maxEventBytes } = this.settings
    if (this.#running.size >= maxBackgroundTurns) throw new AgentError('server_busy')
    const own = [...this.#running.values()].filter((owner) => owner === actor).length
    if (actor !== null && own >= maxBackgroundTurnsPerActor) {
      const message = `This actor already has ${own} background turns; retry later.`
      throw new AgentError('rate_limited', message)
    }
    const detached = new Detached(request, body, format, maxEventBytes)
    this.#running.set(detached, actor)
    void detached.ended.promise.then(() => this.#running.delete(detached))
    detached.run(app)
    return detached
  }

  /** Let clients find the recording of an accepted turn. */
  async publish({ recording }: Detached): Promise<void> {
    if (!recording) return
    this.#recordings.add(recording)
    await this.shared?.publish(recording)
  }

  /**
   * Return the recording of the actor's newest turn of all replicas, or undefined.
   *
   * Throws AgentError `session_forbidden` for another actor's session, or an error of the store.
   */
  async find(sessionId: string, actor: string | null): Promise<Recording | undefined> {
    try {
      return await this.#find(sessionId, actor)
    } catch (error) {
      if (!(error instanceof AgentError) || error.type !== 'session_forbidden') throw error
      // The session may belong to this actor, and have refused the turn of the other actor.
      const { last } = await this.runtime.sessions.read(sessionId, actor)
      if (!last) throw error
      return undefined
    }
  }

  /** Throws AgentError `session_forbidden` if only other actors have turns in the session. */
  async #find(sessionId: string, actor: string | null): Promise<Recording | undefined> {
    const local = this.findHere(sessionId, actor)
    if (local?.state === 'running') return local
    if (!this.shared) {
      if (!local && this.#recordings.has(sessionId)) throw new AgentError('session_forbidden')
      return local
    }
    try {
      return await this.shared.newest(sessionId, actor)
    } catch (error) {
      if (local && error instanceof AgentError && error.type === 'store_unavailable') return local
      throw error
    }
  }

  /** Return the recording of the actor's newest turn of this process, if any. */
  findHere(sessionId: string, actor: string | null): Recording | undefined {
    return this.#recordings.find(sessionId, actor)
  }

  /**
   * Cancel the actor's turns in a session, and return whether any was running.
   *
   * Throws AgentError `session_forbidden` for another actor's session, or an error of the store.
   */
  async stop(sessionId: string, actor: string | null): Promise<boolean> {
    const isOwn = (running: Recording) => running.sessionId === sessionId && running.actor === actor
    let isStopped = this.stopHere(isOwn)
    try {
      if (await this.shared?.stop(sessionId, actor)) isStopped = true
    } catch (error) {
      if (!isStopped || !(error instanceof AgentError)) throw error
    }
    if (isStopped) return true
    if (!(await this.find(sessionId, actor))) await this.runtime.sessions.read(sessionId, actor)
    return false
  }

  /** Whether another replica may run turns that this replica cannot find. */
  get mayRunElsewhere(): boolean {
    return this.shared === null && !(this.runtime.sessions.store instanceof InProcess)
  }

  /** Cancel the matching turns of this process, and return whether any was running. */
  stopHere(isMatch: (running: Recording) => boolean): boolean {
    const matches = [...this.#running.keys()].filter(({ recording }) => {
      return recording && isMatch(recording)
    })
    for (const detached of matches) detached.stop()
    return matches.length > 0
  }

  async #invoke(
    app: RequestListener,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const { runtime } = this
    const sentId = readHeader(request, SESSION_HEADER)
    const sessionId = sentId ?? randomUUID()
    if (SESSION_ID.test(sessionId)) response.setHeader(SESSION_HEADER, sessionId)
    checkAccess(request, runtime, true, typesOf(request, runtime.settings))
    const read = () => receive(request, this.settings.maxBodyBytes)
    // A turn can be followed and stopped while MAX_TURNS run.
    const isSmall = Number(request.headers['content-length']) <= MAX_CONTROL_BYTES
    const body = isSmall ? await read() : await runtime.turns.reading(read)
    const fields = fieldsOf(body, readHeader(request, 'Content-Type') ?? '', this.settings)
    const mode = readMode(fields)
    if (!mode) return void (await app(repeatRequest(request, body), response))
    checkIds(sessionId, null)
    if (mode === 'background') {
      const actor = readActor(request, runtime)
      return this.#begin(response, this.detach(app, request, body, actor, 'events'))
    }
    if (sentId === null) throw new AgentError('invalid_request', SEND_SESSION)
    const isOther = OTHER_FIELDS.some((name) => name in fields)
    if (isOther || runtime.readRequest(fields, sessionId)) {
      throw new AgentError('invalid_request', `Send ${mode} in a separate request.`)
    }
    const actor = readActor(request, runtime)
    if (mode === 'follow') {
      return this.#follow(request, response, sessionId, actor, fields.last_event_id)
    }
    const stopped = await this.stop(sessionId, actor)
    send(response, { session_id: sessionId, stopped })
  }

  /** Answer when a background turn is accepted or rejected. */
  async #begin(response: ServerResponse, detached: Detached): Promise<void> {
    const recording = await detached.recorded.promise
    await detached.accepted.promise
    if (!recording || detached.isRejected) return detached.sendTo(response)
    await this.publish(detached)
    const { sessionId, turnId } = recording
    response.setHeader(SESSION_HEADER, sessionId)
    send(response, { session_id: sessionId, turn_id: turnId }, 202)
  }

  async #follow(
    request: IncomingMessage,
    response: ServerResponse,
    sessionId: string,
    actor: string | null,
    lastEventId: unknown = '',
  ): Promise<void> {
    const eventId = readHeader(request, 'Last-Event-ID') ?? lastEventId
    if (typeof eventId !== 'string') {
      throw new AgentError('invalid_request', 'Send last_event_id as the id of an event.')
    }
    const recording = await this.find(sessionId, actor)
    if (!recording) {
      const { last } = await this.runtime.sessions.read(sessionId, actor)
      if (last && this.mayRunElsewhere) throw new BackgroundError('turn_elsewhere')
      throw new AgentError('not_found', NOTHING)
    }
    if (recording.format === 'chat') {
      const place = `GET /api/chat/${encodeURIComponent(sessionId)}/stream`
      const message = `This turn belongs to useChat: follow it with ${place}.`
      throw new BackgroundError('turn_elsewhere', message)
    }
    const number = numberAfter(recording, eventId)
    const hasReadAll = number > 1 && number > recording.final
    if (hasReadAll && recording.state === 'ended') {
      // So that an EventSource does not reconnect after the last event.
      response.writeHead(204).end()
      return
    }
    checkReader(recording, number, this.settings.maxReaders)
    await stream(response, recording, number, STREAM_HEADERS, this.settings)
  }
}

/** Answer a request, and send a BackgroundError as its response. */
async function answer(response: ServerResponse, work: () => Promise<void>): Promise<void> {
  try {
    await work()
  } catch (error) {
    if (!(error instanceof BackgroundError)) throw error
    error.send(response)
  }
}

/** Return the fields of a form or of a JSON object; the agent itself rejects other bodies. */
function fieldsOf(body: Uint8Array, contentType: string, settings: CoreSettings): Fields {
  try {
    const value = parseBody(body, contentType, settings)
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : {}
  } catch {
    return {}
  }
}

/** Return the mode of a request, if any. Throws AgentError `invalid_request`. */
function readMode(fields: Fields): Mode | undefined {
  for (const name of MODES) {
    if (!['boolean', 'undefined'].includes(typeof fields[name])) {
      throw new AgentError('invalid_request', `Send ${name} as true or false.`)
    }
  }
  const [mode, other] = MODES.filter((name) => fields[name] === true)
  if (other) throw new AgentError('invalid_request', `Send ${other} in a separate request.`)
  return mode
}
