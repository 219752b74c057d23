// What a caller is told when the session store fails.

import { AgentError } from '../contract.ts'

// As ERRORS of the contract: error type -> HTTP status, and the message.
export const STORE_ERRORS = {
  session_conflict: [
    409,
    'Another instance went on with this session; nothing was kept of this turn.',
  ],
  session_corrupt: [
    409,
    'What was stored of this session cannot be read. It was set aside: the next turn starts anew.',
  ],
  session_too_large: [
    413,
    'The session has become too large to be stored; nothing was kept of this turn.',
  ],
  store_unavailable: [
    503,
    'The session store cannot be used. Ask again later, with the same idempotency key.',
  ],
} as const

/** A failure by its type in STORE_ERRORS; `detail` is for the log only. */
export class StoreError extends AgentError {
  constructor(type: keyof typeof STORE_ERRORS, detail = '') {
    const [status, message] = STORE_ERRORS[type]
    super('internal_error', message, detail)
    Object.assign(this, { type, status, body: { error: { type, message } } })
  }
}
