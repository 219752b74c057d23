// What a session store and long-term memory add to the errors of the HTTP contract.

import { AgentError, ERRORS } from '../contract.ts'
import { Unavailable } from './backends.ts'

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

// Where people are remembered, callers are told in these words.
Object.assign(ERRORS, {
  actor_required: [
    400,
    'This agent remembers people: say who you are, with --actor ID or in a header.',
  ],
  invalid_actor: [400, `${ERRORS.invalid_actor[1]} Map one, for example to its SHA-256.`],
})

/** What was asked for is not valid, and never will be. */
export class Refused extends Unavailable {}

/** A failure by its type in STORE_ERRORS; `detail` is for the log only. */
export class StoreError extends AgentError {
  constructor(type: keyof typeof STORE_ERRORS, detail = '') {
    const [status, message] = STORE_ERRORS[type]
    super('internal_error', message, detail)
    Object.assign(this, { type, status, body: { error: { type, message } } })
  }
}
