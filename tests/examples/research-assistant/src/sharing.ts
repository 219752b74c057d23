// Share links: a session for readers without a token. Export: all sessions of a customer.

import { createHash } from 'node:crypto'

import { EncryptJWT, errors, jwtDecrypt } from 'jose'

import { AgentError, Capability, type Handler, route, type Routes } from './harness/index.ts'
import type { Settings } from './own_settings.ts'

type Shared = { session: string; actor: string | null }

export class Sharing extends Capability<Settings> {
  override routes(): Routes {
    const routes: Routes = { 'GET /export': this.#export }
    if (!this.settings.shareSecret) return routes
    return {
      ...routes,
      'POST /share/{session}': this.#share,
      'GET /shared/{link}': route(this.#show, { public: true }),
    }
  }

  readonly #export: Handler = async (_request, response, runtime, { actor }) => {
    const sessions = []
    for (const { sessionId, savedAt } of await runtime.sessions.list(actor)) {
      const turns = await runtime.sessions.turns(sessionId, actor)
      sessions.push({ sessionId, savedAt, turns })
    }
    response.setHeader('Content-Type', 'application/json').end(JSON.stringify({ sessions }))
  }

  readonly #share: Handler = async (_request, response, runtime, { actor, params }) => {
    const session = params.session!
    const turns = await runtime.sessions.turns(session, actor)
    if (turns.length === 0) throw new AgentError('not_found', 'There is no such session.')
    // Encrypted, so that readers do not learn whose session it is.
    const link = await new EncryptJWT({ session, actor } satisfies Shared)
      .setProtectedHeader({ alg: 'dir', enc: 'A256GCM' })
      .setExpirationTime('30 days')
      .encrypt(this.#key())
    response.setHeader('Content-Type', 'application/json')
    response.end(JSON.stringify({ path: `${this.settings.basePath}/shared/${link}` }))
  }

  readonly #show: Handler = async (_request, response, runtime, { params }) => {
    const { session, actor } = await this.#read(params.link!)
    const turns = await runtime.sessions.turns(session, actor)
    const text = turns.map(({ prompt, reply }) => `> ${prompt}\n\n${reply}\n`).join('\n')
    response.setHeader('Content-Type', 'text/plain; charset=utf-8')
    response.setHeader('X-Content-Type-Options', 'nosniff').end(text)
  }

  async #read(link: string): Promise<Shared> {
    try {
      return (await jwtDecrypt<Shared>(link, this.#key())).payload
    } catch (error) {
      if (!(error instanceof errors.JOSEError)) throw error
      throw new AgentError('not_found', 'The link is not valid, or has expired.')
    }
  }

  #key(): Uint8Array {
    return createHash('sha256').update(this.settings.shareSecret).digest()
  }
}
