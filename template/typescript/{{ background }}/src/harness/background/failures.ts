// The errors of background turns, in addition to those of the HTTP contract.

import type { ServerResponse } from 'node:http'

import type { AgentError } from '../contract.ts'
import { send } from '../http/server.ts'
import { serialize } from '../sessions/sessions.ts'

const FAILURES = {
  events_lost: [
    409,
    'The first events of this turn were dropped: its reply will be in the session.',
  ],
  turn_elsewhere: [
    409,
    'Another replica may run this turn: send the request there, or store sessions in Valkey.',
  ],
  turn_stopped: [409, 'The turn was stopped; it was not saved.'],
  turn_lost: [
    503,
    'The process ended during the turn; send the request again with the same Idempotency-Key.',
  ],
} as const

/** The last part of a stopped turn of useChat. */
const ABORT = { type: 'abort' }

/** The end of a stream of useChat. */
export const DONE = 'data: [DONE]\n\n'

/** The form of events: those of POST /invocations, or those of useChat. */
export type Format = 'events' | 'chat'

/** A failure of a background turn or of its reader. */
export class BackgroundError extends Error {
  readonly type: keyof typeof FAILURES
  readonly status: number

  constructor(type: keyof typeof FAILURES, message = '') {
    const [status, general] = FAILURES[type]
    super(message || general)
    this.type = type
    this.status = status
  }

  /** Send the error as a response. */
  send(response: ServerResponse): void {
    const { status, type, message } = this
    send(response, { error: { type, message } }, status)
  }
}

/** Return the last event of a stream that fails. */
export function formatError(format: Format, error: BackgroundError | AgentError): string {
  const { type, message } = error
  if (format === 'events') return errorEvent(serialize({ error: { type, message } }))
  const errorText = `${type}: ${message}`
  const part = type === 'turn_stopped' ? ABORT : { type: 'error', errorText }
  return `data: ${serialize(part)}\n\n${DONE}`
}

/** Return the event of POST /invocations for an error; `body` is JSON. */
export function errorEvent(body: string): string {
  return `event: error\ndata: ${body}\n\n`
}
