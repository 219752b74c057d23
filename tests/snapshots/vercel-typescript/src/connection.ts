// The HTTP connections: what a client may send, and how long that may take.

import { createServer, type RequestListener, type Server } from 'node:http'
import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'

import { AgentError } from './contract.ts'

/** Create a server whose clients have these seconds for each whole request. */
export function createHttpServer(app: RequestListener, seconds: number): Server {
  const limit = seconds * 1000
  const limits = { headersTimeout: limit, requestTimeout: limit, keepAliveTimeout: limit }
  // The app itself refuses a request without Host.
  const options = { ...limits, connectionsCheckingInterval: 1000, requireHostHeader: false }
  return createServer(options, app).on('clientError', refuse)
}

function refuse(error: NodeJS.ErrnoException, socket: Duplex): void {
  const isLate = error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
  const { _httpMessage: answer } = socket as { _httpMessage?: ServerResponse } // to an earlier one
  if (isLate && answer?.req.complete) return void answer.once('close', () => refuse(error, socket))
  if (socket.writable && error.code !== 'ECONNRESET' && !answer?.headersSent) {
    const { type, status, message } = new AgentError(isLate ? 'request_timeout' : 'invalid_request')
    const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\n`
    const body = JSON.stringify({ error: { type, message } })
    socket.write(`${head}Content-Type: application/json\r\n\r\n${body}`)
  }
  socket.destroy(error)
}
