// Routes of your own, besides POST /invocations and GET /ping. Updates leave this file alone.

import type { IncomingMessage, ServerResponse } from 'node:http'

import type { Runtime } from './harness/runtime.ts'

export type Handler = (
  request: IncomingMessage,
  response: ServerResponse,
  runtime: Runtime,
) => void | Promise<void>

// By method and path. Host, Origin and API_TOKEN are checked before a handler is called.
export const ROUTES: Record<string, Handler> = {}
