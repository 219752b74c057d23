// Routes of your own, besides POST /invocations and GET /ping. Updates leave this file alone.

import type { IncomingMessage, ServerResponse } from 'node:http'

import type { Runtime } from './harness/index.ts'
import { serveFile } from './widget.ts'

export type Handler = (
  request: IncomingMessage,
  response: ServerResponse,
  runtime: Runtime,
) => void | Promise<void>

// By method and path. Host, Origin and API_TOKEN are checked before a handler is called.
export const ROUTES: Record<string, Handler> = {
  'GET /': serveFile('index.html', 'text/html; charset=utf-8'),
  'GET /widget.js': serveFile('widget.js', 'text/javascript; charset=utf-8'),
  'GET /widget.css': serveFile('widget.css', 'text/css; charset=utf-8'),
}
