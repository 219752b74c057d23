// HTTP connections with limits on the size of request heads and on time.

import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Server as Listener, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { getSystemErrorMessage } from 'node:util'

import { AgentError, type ErrorType } from '../contract.ts'
import { CommandError } from '../findings.ts'
import type { CoreSettings } from '../settings.ts'

/** The types of errors by the codes of Node; other errors are `invalid_request`. */
const TYPES: Record<string, ErrorType> = {
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
  HPE_HEADER_OVERFLOW: 'head_too_large',
}

/**
 * Create a server whose clients have `requestTimeoutSeconds` for each whole request.
 *
 * Above `maxConnections`, the server closes the connection that has been idle longest.
 */
export function createHttpServer(app: RequestListener, settings: CoreSettings): Server {
  const limit = settings.requestTimeoutSeconds * 1000
  const limits = { headersTimeout: limit, requestTimeout: limit, keepAliveTimeout: limit }
  // The app rejects a request without Host.
  const options = { ...limits, connectionsCheckingInterval: 1000, requireHostHeader: false }
  const sockets = new Set<Socket>()
  const maxSockets = maxConnections(settings.maxTurns)
  return createServer(options, app)
    .on('clientError', refuse)
    .on('connect', (_, socket) => {
      socket.on('error', () => {}) // Node no longer handles it
      refuse(new Error('CONNECT'), socket)
    })
    .on('checkExpectation', app) // an unknown expectation is ignored
    .on('request', ({ socket }) => {
      if (sockets.delete(socket)) sockets.add(socket) // the most recently used socket is last
    })
    .on('connection', (socket: Socket) => {
      sockets.add(socket)
      socket.once('close', () => sockets.delete(socket))
      if (sockets.size <= maxSockets) return
      const longest = [...sockets].find((open) => !answerOn(open)?.req.complete) ?? socket
      sockets.delete(longest)
      longest.destroy()
    })
}

/** Listen on HOST and PORT. Throws CommandError with the system's error as cause. */
export async function listen(server: Listener, { host, port }: CoreSettings): Promise<void> {
  try {
    await once(server.listen(port, host), 'listening')
  } catch (error) {
    const why = getSystemErrorMessage((error as { errno: number }).errno)
    const message = `Cannot listen on HOST ${host}, PORT ${port}: ${why}.`
    throw Object.assign(new CommandError(message), { cause: error })
  }
}

/** Return the maximum number of connections: at most half the process's limit of open files. */
function maxConnections(maxTurns: number): number {
  type Report = { userLimits?: { open_files: { soft: number | 'unlimited' } } } // not on Windows
  const { userLimits } = process.report.getReport() as Report
  const descriptors = Number(userLimits?.open_files.soft) // NaN: no limit
  return Math.min(256 + 4 * maxTurns, Math.floor(descriptors / 2) || Infinity)
}

/** Connections that end after the responses to their whole requests. */
const refused = new WeakSet<Duplex>()

/** Return the response in progress, if any. */
function answerOn(socket: Duplex): ServerResponse | undefined {
  return (socket as { _httpMessage?: ServerResponse })._httpMessage
}

function refuse(error: NodeJS.ErrnoException, socket: Duplex): void {
  const answer = answerOn(socket) // the response to an earlier request, which ends first
  if (answer?.req.complete) {
    // The client has left within a next request: end as Node does after a whole request.
    if (socket.readableEnded) return void socket.end()
    if (refused.has(socket)) return
    refused.add(socket)
    // Further bytes would fill the memory. A few are read each second, to notice a client's end.
    socket.removeAllListeners('data').on('data', () => socket.pause())
    const clock = setInterval(() => {
      // A client that does not read would keep its connection and the memory of its body.
      if (answer.writableEnded) socket.destroy()
      else socket.resume()
    }, 1000)
    answer.once('close', () => {
      clearInterval(clock)
      refused.delete(socket)
      refuse(error, socket)
    })
    return
  }
  if (socket.writable && error.code !== 'ECONNRESET' && !answer?.headersSent) {
    const { type, status, message } = new AgentError(TYPES[error.code ?? ''] ?? 'invalid_request')
    const date = `Date: ${new Date().toUTCString()}\r\nConnection: close\r\n`
    const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${date}`
    const body = JSON.stringify({ error: { type, message } })
    const kind = 'Content-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\r\n'
    socket.write(`${head}${kind}${body}`)
  }
  socket.destroy(error)
}
