// The page at /: its files, and headers that let it load and call nothing but this server.

import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { extname, join } from 'node:path'

import { TOOLS } from '../agent.ts'
import { authorize, refuseForeign } from '../requests.ts'
import type { Runtime } from '../runtime.ts'
import type { Exchange } from '../server.ts'

const TYPES: Record<string, string> = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
}
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
  "require-trusted-types-for 'script'; trusted-types 'none'"
const HEADERS = {
  'Content-Security-Policy': POLICY,
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cache-Control': 'no-cache',
}

type Routes = Record<string, (exchange: Exchange) => Promise<void>>

/** Return the routes of the page if UI is 1; it needs no token, the API that it calls does. */
export function pageRoutes(runtime: Runtime): Routes {
  const files = readdirSync(import.meta.dirname).filter((name) => extname(name) in TYPES)
  const routes: Routes = {}
  for (const name of runtime.settings.ui ? files : []) {
    const content = readFileSync(join(import.meta.dirname, name))
    const etag = `"${createHash('sha256').update(content).digest('hex').slice(0, 32)}"`
    const type = { 'Content-Type': TYPES[extname(name)], 'Content-Length': content.length }
    routes[`GET /${name === 'index.html' ? '' : name}`] = async ({ request, response }) => {
      refuseForeign(request, runtime)
      const isKnown = request.headers['if-none-match'] === etag
      if (isKnown) response.writeHead(304, { ...HEADERS, ETag: etag }).end()
      else response.writeHead(200, { ...HEADERS, ...type, ETag: etag }).end(content)
    }
  }
  const agent = async ({ request, response }: Exchange): Promise<void> => {
    refuseForeign(request, runtime)
    authorize(request, runtime)
    const tools = TOOLS
    const names = tools.map((tool) => ('name' in tool ? String(tool.name) : '')).filter(Boolean)
    response.writeHead(200, { ...HEADERS, 'Content-Type': 'application/json' })
    response.end(JSON.stringify({ model: runtime.settings.model, tools: names }))
  }
  if (runtime.settings.ui) routes['GET /agent.json'] = agent
  return routes
}
