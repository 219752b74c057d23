// The capability that verifies tokens, binds requests to actors, and limits their use.
//
// API_TOKEN, a secret of this process, replaces each verified token, because the server's own
// checks accept only that secret, at every route that needs a token.

import { randomUUID } from 'node:crypto'
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'

import { Capability } from '../capability.ts'
import { ACTOR_HEADERS, AgentError, type Change, TOKEN_HEADER, type Turn } from '../contract.ts'
import { CommandError, diagnostic, type Finding } from '../findings.ts'
import { log } from '../log.ts'
import { type LanguageModel, OfflineModel } from '../echo_model.ts'
import type { Modules } from '../modules.ts'
import * as adapter from './adapter.ts'
import { IssuerUnavailable, Keys } from './keys.ts'
import { Limits } from './limits.ts'
import { Meter } from './metering.ts'
import type { AuthSettings } from './settings.ts'
import { InvalidToken, Tokens } from './token.ts'

type Model = LanguageModel

const NAMES = ACTOR_HEADERS.map((name) => name.toLowerCase())
const TOKEN_NAME = TOKEN_HEADER.toLowerCase()
const UNSET = 'AUTH_ISSUER is not set: with a model, `serve` needs it, or API_TOKEN.'
const ALONE = 'Tokens of AUTH_ISSUER replace API_TOKEN: unset one of these settings.'
const NO_AUDIENCE = 'AUTH_AUDIENCE is not set: tokens for other services would be accepted.'

/** Accepts requests with a token of AUTH_ISSUER; routes that need no token stay open. */
export class Auth extends Capability<AuthSettings> {
  readonly limits: Limits
  readonly #keys: Keys
  readonly #tokens: Tokens
  readonly #problem: string

  constructor(settings: AuthSettings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    this.limits = new Limits(settings)
    this.#keys = new Keys(settings)
    this.#tokens = new Tokens(settings, this.#keys)
    this.#problem = problemOf(settings)
    // Now, before any other code reads it.
    if (settings.authIssuer) Object.assign(settings, { apiToken: randomUUID() })
  }

  override check(): Finding[] {
    if (this.#problem) return [diagnostic('SET-AUTH_ISSUER', this.#problem)]
    if (this.settings.authIssuer) return []
    return [diagnostic('SET-AUTH_ISSUER', UNSET, 'warning')]
  }

  override async ping(): Promise<Finding[]> {
    try {
      if (this.settings.authIssuer) await this.#keys.read()
      return []
    } catch (error) {
      if (!(error instanceof IssuerUnavailable)) throw error
      const message = `The keys of AUTH_ISSUER cannot be read: ${error.message}.`
      return [diagnostic('SET-AUTH_ISSUER', message)]
    }
  }

  override describe(): string[] {
    const { authIssuer: issuer } = this.settings
    return issuer ? [`Callers: by tokens of ${issuer}`] : []
  }

  override wrap(app: RequestListener): RequestListener {
    const { apiToken, authIssuer, model } = this.settings
    if (!authIssuer && model !== 'offline' && !apiToken) throw new CommandError(UNSET)
    if (!authIssuer) return app
    return async (request, response) => {
      await this.#bind(request, response)
      await app(request, response)
    }
  }

  override async around(turn: Turn, run: () => Promise<unknown>): Promise<unknown> {
    if (turn.actor !== null) await this.limits.begin(turn.actor)
    return run()
  }

  /** Count the tokens that tools added to the turn. */
  override async ended({ actor, charged }: Turn): Promise<void> {
    const tokens = charged.inputTokens + charged.outputTokens
    if (actor !== null && tokens > 0) await this.limits.spend(actor, tokens, Date.now() / 1000)
  }

  override async beforeChange({ actor, fork }: Change): Promise<void> {
    if (fork && actor !== null) await this.limits.begin(actor)
  }

  override wrapModel(model: Model, actor: string | null, turn?: Turn): Model {
    if (actor === null || !this.limits.hasTokens || model.constructor === OfflineModel) return model
    return adapter.metered(model, new Meter(this.limits, actor, turn))
  }

  /** Replace a request's token with its actor and API_TOKEN. Throws AgentError. */
  async #bind(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { headers, headersDistinct: sent } = request
    const tokens = sent[TOKEN_NAME]?.map((token) => `Bearer ${token}`)
    const values = tokens ?? sent.authorization ?? []
    const actors = NAMES.flatMap((name) => sent[name] ?? [])
    for (const name of ['authorization', TOKEN_NAME, ...NAMES]) {
      delete headers[name]
      delete sent[name]
    }
    const [, token] = (values.length === 1 && /^bearer +([!-~]+) *$/i.exec(values[0]!)) || []
    if (!token) return
    let actor: string
    try {
      actor = await this.#tokens.actorOf(token)
    } catch (error) {
      if (error instanceof InvalidToken) return challenge(response, error.message)
      if (!(error instanceof IssuerUnavailable)) throw error
      throw new AgentError('server_busy', 'Tokens cannot be verified now; retry later.')
    }
    if (actors.some((value) => value !== actor)) {
      log('WARNING', 'rejected a request: a header names a different actor than the token')
      throw new AgentError('session_forbidden', 'A header names a different actor than the token.')
    }
    const identityHeaders = {
      authorization: `Bearer ${this.settings.apiToken}`,
      [NAMES[0]!]: actor,
    }
    for (const [name, value] of Object.entries(identityHeaders)) {
      headers[name] = value
      sent[name] = [value]
    }
  }
}

/** Return the reason why the settings cannot work, or ''. */
function problemOf({ apiToken, authAudience, authIssuer }: AuthSettings): string {
  if (!authIssuer) return ''
  if (apiToken) return ALONE
  return authAudience ? '' : NO_AUDIENCE
}

/** Add the reason for a rejected token to responses with status 401 (RFC 6750). */
function challenge(response: ServerResponse, reason: string): void {
  const set = response.setHeader.bind(response)
  const description = `error_description="The token is not accepted: ${reason}."`
  response.setHeader = (name, value) =>
    set(name, name === 'WWW-Authenticate' ? `Bearer error="invalid_token", ${description}` : value)
}
