// The page at /: its files, with headers that restrict it to this server.

import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { extname, join } from 'node:path'

import { explain } from '../models/advice.ts'
import { Capability, type Routes } from '../capability.ts'
import { ChatRoute } from '../http/chat_route.ts'
import type { AgentError } from '../contract.ts'
import { diagnostic, type Finding } from '../findings.ts'
import type { Handler, Modules } from '../modules.ts'
import { isLoopback } from '../settings.ts'
import type { PageSettings } from './settings.ts'

const TYPES: Record<string, string> = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
}
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
  "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
  "require-trusted-types-for 'script'; trusted-types 'none'"
const STOP = 'DELETE /api/chat/{id:path}/stream' // of turns that continue after their page has left
const HEADERS = {
  'Content-Security-Policy': POLICY,
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cache-Control': 'no-cache',
}

/** Serves the page if UI is 1. The page needs no token; the API that it calls does. */
export class Page extends Capability<PageSettings> {
  readonly #before: readonly Capability[]

  constructor(settings: PageSettings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    this.#before = before
    const route = before.find((capability) => capability instanceof ChatRoute)!
    if (settings.ui) route.explain = (error) => this.#explain(error)
  }

  override check(): Finding[] {
    const { apiToken, host, ui } = this.settings
    if (!ui || isLoopback(this.settings) || apiToken) return []
    const message = `The page on HOST ${host} needs API_TOKEN: other machines can reach it.`
    return [diagnostic('SET-UI', message)]
  }

  override describe(address: string): string[] {
    const url = address.replace(/\/\/(0\.0\.0\.0|\[::\]):/, '//localhost:')
    return this.settings.ui ? [`Page: ${url}/`] : []
  }

  override publicRoutes(): Routes {
    const files = readdirSync(import.meta.dirname).filter((name) => extname(name) in TYPES)
    const names = this.settings.ui ? files : []
    return Object.fromEntries(
      names.map((name) => [`GET /${name === 'index.html' ? '' : name}`, fileRoute(name)]),
    )
  }

  override routes(): Routes {
    const resumes = this.#before.some((capability) => STOP in (capability.routes?.() ?? {}))
    const agent: Handler = (_, response, runtime) => {
      const { model } = runtime.settings
      const tools = namesOf(runtime.tools())
      response.writeHead(200, { ...HEADERS, 'Content-Type': 'application/json' })
      response.end(JSON.stringify({ model, tools, resumes }))
    }
    return this.settings.ui ? { 'GET /agent.json': agent } : {}
  }

  /** Explain an error to users of this machine; refer other users to the log. */
  async #explain(error: AgentError): Promise<string> {
    const { allowedHosts, allowedOrigins } = this.settings
    const isLocal = isLoopback(this.settings) && !allowedHosts && !allowedOrigins
    if (isLocal && (error.detail || error.cause)) {
      const advice = await explain(error, this.load)
      return ` ${advice.trimEnd()}`
    }
    const isLogged = error.detail || error.type === 'internal_error'
    return isLogged ? " The server's log has the reason." : ''
  }
}

/** Return the route of a file beside this module. */
function fileRoute(name: string): Handler {
  const content = readFileSync(join(import.meta.dirname, name))
  const ETag = `"${createHash('sha256').update(content).digest('hex').slice(0, 32)}"`
  const type = { 'Content-Type': TYPES[extname(name)], 'Content-Length': content.length }
  return (request, response) => {
    const isKnown = request.headers['if-none-match'] === ETag
    if (isKnown) response.writeHead(304, { ...HEADERS, ETag }).end()
    else response.writeHead(200, { ...HEADERS, ...type, ETag }).end(content)
  }
}

/** Return the names of tools: an array in Strands, an object in the AI SDK. */
function namesOf(tools: object): string[] {
  return Array.isArray(tools) ? tools.map(({ name }) => String(name)) : Object.keys(tools)
}
