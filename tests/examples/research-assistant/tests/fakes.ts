// Servers of tests: an encyclopedia, a model provider, and a receiver of answers.

import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { after } from 'node:test'

/** Start a server that ends with the test file, and return its address. */
export async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener).listen(0, '127.0.0.1')
  await once(server, 'listening')
  after(() => server.close().closeAllConnections())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** An encyclopedia with an article for every title; `waitFor` requests are answered together. */
export async function encyclopedia(waitFor = 1): Promise<{ url: string; titles: string[] }> {
  const titles: string[] = []
  const { promise: all, resolve } = Promise.withResolvers<void>()
  const url = await serve(async (request, response) => {
    const title = decodeURIComponent(request.url!.slice(1))
    if (titles.push(title) >= waitFor) resolve()
    await all
    if (title === 'Nothing') return void response.writeHead(404).end()
    const page = `https://encyclopedia.example/${encodeURIComponent(title)}`
    const article = { title, extract: `About ${title}.`, content_urls: { desktop: { page } } }
    response.end(JSON.stringify(article))
  })
  return { url, titles }
}

/** A provider of Chat Completions whose model says "ok"; `requests` are the bodies it got. */
export async function provider(): Promise<{ url: string; requests: Record<string, unknown>[] }> {
  const requests: Record<string, unknown>[] = []
  const url = await serve(async (request, response) => {
    requests.push(JSON.parse(await text(request)))
    const delta = { role: 'assistant', content: 'ok' }
    const chunk = { id: '1', choices: [{ index: 0, delta, finish_reason: 'stop' }] }
    response.setHeader('Content-Type', 'text/event-stream')
    response.end(`data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`)
  })
  return { url: `${url}/v1`, requests }
}

/** A receiver of one answer. */
export async function receiver(): Promise<{ url: string; answer: Promise<unknown> }> {
  const { promise: answer, resolve } = Promise.withResolvers<unknown>()
  const url = await serve(async (request, response) => {
    resolve(JSON.parse(await text(request)))
    response.end()
  })
  return { url, answer }
}
