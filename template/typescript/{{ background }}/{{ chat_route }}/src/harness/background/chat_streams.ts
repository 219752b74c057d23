// Streams of useChat that continue without their page, and that another page can follow.

import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'

import { Capability, type Routes } from '../capability.ts'
import { checkIds, SESSION_HEADER } from '../contract.ts'
import { checkAccess, pathOf, readActor, receive } from '../http/requests.ts'
import { STREAM_HEADERS } from '../http/server.ts'
import type { Handler, Modules } from '../modules.ts'
import { Background } from './capability.ts'
import { BackgroundError } from './failures.ts'
import { checkReader, stream } from './readers.ts'
import type { Recording } from './recording.ts'
import type { BackgroundSettings } from './settings.ts'

const NO_CONTENT = { 'Cache-Control': 'no-store' }
const TURN_HEADER = 'X-Turn-Id' // of a stream: its turn continues without clients
const HEADERS = {
  ...STREAM_HEADERS,
  'Cache-Control': 'no-cache, no-store',
  'x-vercel-ai-ui-message-stream': 'v1',
}

/** Runs the turns of POST /api/chat without their page. */
export class ChatStreams extends Capability<BackgroundSettings> {
  readonly #background: Background

  constructor(settings: BackgroundSettings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    this.#background = before.find((capability) => capability instanceof Background)!
  }

  override get wrapsLast(): boolean {
    return true
  }

  override wrap(app: RequestListener): RequestListener {
    return async (request, response) => {
      const isChat = request.method === 'POST' && pathOf(request) === '/api/chat'
      if (isChat) await this.#post(app, request, response)
      else await app(request, response)
    }
  }

  override routes(): Routes {
    const resume: Handler = async (request, response, runtime, { params }) => {
      const sessionId = readId(response, params.id)
      const actor = readActor(request, runtime)
      const recording = await this.#background.find(sessionId, actor)
      // Another actor's session is an error.
      if (!recording) await runtime.sessions.read(sessionId, actor)
      if (recording?.format !== 'chat' || recording.state !== 'running') {
        return void response.writeHead(204, NO_CONTENT).end()
      }
      if (recording.first > 1) {
        // Its start was dropped: only say that it runs.
        setTurnId(response, recording)
        return void response.writeHead(204, NO_CONTENT).end()
      }
      checkReader(recording, 1, this.settings.maxReaders)
      await this.#stream(response, recording)
    }

    const stop: Handler = async (request, response, runtime, { params }) => {
      const sessionId = readId(response, params.id)
      const stopped = await this.#background.stop(sessionId, readActor(request, runtime))
      if (!stopped && this.#background.mayRunElsewhere) {
        return new BackgroundError('turn_elsewhere').send(response)
      }
      response.writeHead(204, NO_CONTENT).end()
    }

    const path = '/api/chat/{id:path}/stream'
    return { [`GET ${path}`]: resume, [`DELETE ${path}`]: stop }
  }

  async #post(
    app: RequestListener,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const { runtime } = this.#background
    response.setHeader('Cache-Control', 'no-store')
    checkAccess(request, runtime)
    const body = await runtime.turns.reading(() => receive(request, this.settings.maxBodyBytes))
    const actor = readActor(request, runtime)
    const detached = this.#background.detach(app, request, body, actor, 'chat')
    void detached.accepted.promise.then(() => {
      if (!detached.isRejected) void this.#background.publish(detached)
    })
    const recording = await detached.recorded.promise
    if (!recording) return detached.sendTo(response)
    detached.copyHead(response)
    await this.#stream(response, recording)
  }

  async #stream(response: ServerResponse, recording: Recording): Promise<void> {
    setTurnId(response, recording)
    await stream(response, recording, 1, HEADERS, this.settings)
  }
}

/** Set the id of the turn, which pages in ALLOWED_ORIGINS may read. */
function setTurnId(response: ServerResponse, { turnId }: Recording): void {
  response.setHeader(TURN_HEADER, turnId)
  response.appendHeader('Access-Control-Expose-Headers', TURN_HEADER)
}

function readId(response: ServerResponse, value = ''): string {
  const id = value.replace(/^__(?=LOCALID_)/, '') // assistant-ui adds this prefix
  checkIds(id, null)
  response.setHeader(SESSION_HEADER, id)
  return id
}
