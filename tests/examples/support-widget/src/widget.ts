// Serves the page that `npm run build` makes in widget/, from the port of the agent: the page then
// needs no other server, and its requests have no foreign origin.

import { readFile } from 'node:fs/promises'

import type { Handler } from './routes.ts'

const BUILT = new URL('../widget/dist/', import.meta.url)
const HEADERS = {
  'Cache-Control': 'no-cache',
  'Content-Security-Policy': "default-src 'self'",
  'X-Content-Type-Options': 'nosniff',
}

/** Return a handler that serves one file. */
export function serveFile(name: string, type: string, folder = BUILT): Handler {
  return async (_, response) => {
    const file = await readFile(new URL(name, folder)).catch(() => null)
    if (file) {
      response.writeHead(200, { ...HEADERS, 'Content-Type': type }).end(file)
    } else {
      const hint = 'The page is not built: run npm install and npm run build in widget/.\n'
      response.writeHead(404, { ...HEADERS, 'Content-Type': 'text/plain' }).end(hint)
    }
  }
}
