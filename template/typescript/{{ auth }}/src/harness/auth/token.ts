// Verifies bearer tokens (RFC 6750) that are JSON Web Tokens (RFC 7519), and reads their actor.

import { createHash } from 'node:crypto'

import { errors, type JWTPayload, jwtVerify } from 'jose'

import { ACTOR_ID } from '../contract.ts'
import { ALGORITHMS, IssuerUnavailable, type Keys } from './keys.ts'
import type { AuthSettings } from './settings.ts'

const LEEWAY_SECONDS = 60 // allowed difference between clocks
const HASHED = 'sha256-'
const FORM = /^([A-Za-z0-9_-]+\.){2}[A-Za-z0-9_-]*$/ // without padding

/** The token is rejected. The message gives the reason, and quotes nothing from the token. */
export class InvalidToken extends Error {}

/** Verifies the tokens of one issuer. */
export class Tokens {
  readonly #settings: AuthSettings
  readonly #keys: Keys
  readonly #audiences: readonly string[]

  constructor(settings: AuthSettings, keys: Keys) {
    this.#settings = settings
    this.#keys = keys
    this.#audiences = settings.authAudience.match(/[^, ]+/g) ?? []
  }

  /** Return the actor of a token. Throws InvalidToken and IssuerUnavailable. */
  async actorOf(token: string): Promise<string> {
    const { authActorClaim: name } = this.#settings
    const value = (await this.#verify(token))[name]
    if (typeof value !== 'string' || !value) throw new InvalidToken(`it has no claim ${name}`)
    return actorId(value)
  }

  async #verify(token: string): Promise<JWTPayload> {
    if (!FORM.test(token)) throw new InvalidToken('it is not valid')
    try {
      const { payload } = await jwtVerify(token, this.#keys.find, {
        algorithms: ALGORITHMS,
        issuer: this.#settings.authIssuer,
        clockTolerance: LEEWAY_SECONDS,
        requiredClaims: ['exp'],
      })
      // Some issuers, such as Amazon Cognito, put the client's id into access tokens instead.
      const audience = payload.aud ?? payload.client_id
      const names = Array.isArray(audience) ? audience : [audience]
      if (names.some((name) => this.#audiences.includes(name as string))) return payload
    } catch (error) {
      if (error instanceof IssuerUnavailable) throw error
      throw new InvalidToken(reasonOf(error))
    }
    throw new InvalidToken('it is for a different audience')
  }
}

function reasonOf(error: unknown): string {
  if (error instanceof errors.JWTExpired) return 'it has expired'
  if (error instanceof errors.JWSSignatureVerificationFailed) return 'its signature is wrong'
  if (error instanceof errors.JWKSNoMatchingKey) return 'the issuer has no such key'
  if (error instanceof errors.JWKSMultipleMatchingKeys) return 'the issuer has no such key'
  if (error instanceof errors.JOSEAlgNotAllowed) return 'its signature algorithm is not accepted'
  if (!(error instanceof errors.JWTClaimValidationFailed)) return 'it is not valid'
  if (error.reason === 'missing') return 'it lacks exp or iss'
  return error.claim === 'iss' ? 'it is from a different issuer' : 'it is not valid yet'
}

/**
 * Return a claim as an actor id: unchanged if valid, or else its SHA-256.
 *
 * A claim that looks like a hash is hashed too, so no claim can imitate the hash of another.
 */
export function actorId(value: string): string {
  const isId = ACTOR_ID.test(value) && !value.includes('/') && !value.startsWith(HASHED)
  const hash = () => createHash('sha256').update(value.toWellFormed()).digest('hex')
  return isId ? value : HASHED + hash()
}
