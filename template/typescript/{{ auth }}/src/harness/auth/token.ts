// Verifies bearer tokens (RFC 6750) that are JSON Web Tokens (RFC 7519), and reads their actor.

import { createHash } from 'node:crypto'

import { decodeProtectedHeader, errors, type JWTPayload, jwtVerify } from 'jose'

import { ACTOR_ID } from '../contract.ts'
import { log } from '../log.ts'
import { ALGORITHMS, IssuerUnavailable, type Keys } from './keys.ts'
import type { AuthSettings } from './settings.ts'

const LEEWAY_SECONDS = 60 // allowed difference between clocks
const MAX_LOGGED_CHARS = 200
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
    let claims: JWTPayload
    try {
      claims = await this.#readClaims(token)
    } catch (error) {
      if (error instanceof IssuerUnavailable || error instanceof InvalidToken) throw error
      throw new InvalidToken(reasonOf(error))
    }
    checkTimes(claims)
    this.#checkAudience(claims)
    return claims
  }

  /** Return the claims if a key of the issuer has signed them. */
  async #readClaims(token: string): Promise<JWTPayload> {
    const { alg = '', crit, kid } = decodeProtectedHeader(token)
    if (crit !== undefined || (kid !== undefined && typeof kid !== 'string')) {
      throw new InvalidToken('it is not valid')
    }
    if (!ALGORITHMS.includes(alg)) {
      throw new InvalidToken('its signature algorithm is not accepted')
    }
    let reason = 'the issuer has no such key'
    for await (const key of this.#keys.candidates(kid, alg)) {
      try {
        const { payload } = await jwtVerify(token, key, {
          algorithms: [alg],
          issuer: this.#settings.authIssuer,
          clockTolerance: LEEWAY_SECONDS,
          requiredClaims: ['exp'],
        })
        return payload
      } catch (error) {
        if (!(error instanceof errors.JWSSignatureVerificationFailed)) throw error
        reason = 'its signature is wrong'
      }
    }
    throw new InvalidToken(reason)
  }

  /** Compare the audience with AUTH_AUDIENCE. Throws InvalidToken. */
  #checkAudience(claims: JWTPayload): void {
    // Some issuers, such as Amazon Cognito, put the client's id into access tokens instead.
    const audience: unknown = claims.aud ?? claims.client_id
    const values: unknown[] = Array.isArray(audience) ? audience : [audience]
    const names = values.filter((value) => typeof value === 'string')
    if (names.some((name) => this.#audiences.includes(name))) return
    const shown = names.join(', ').slice(0, MAX_LOGGED_CHARS) || 'none'
    log('WARNING', `rejected a token: AUTH_AUDIENCE does not list its audience: ${shown}`)
    throw new InvalidToken('it is for a different audience')
  }
}

/**
 * Check times that jose does not check. Throws InvalidToken.
 *
 * FAPI 2.0 rejects `iat` in the future, like `nbf`.
 */
function checkTimes({ exp, iat, nbf }: JWTPayload): void {
  const isExact = (time = 0) => Math.abs(time) <= Number.MAX_SAFE_INTEGER
  if (![exp, iat, nbf].every(isExact)) throw new InvalidToken('it is not valid')
  const isFuture = (iat ?? 0) > Date.now() / 1000 + LEEWAY_SECONDS
  if (isFuture) throw new InvalidToken('it is not valid yet')
}

function reasonOf(error: unknown): string {
  if (error instanceof errors.JWTExpired) return 'it has expired'
  if (!(error instanceof errors.JWTClaimValidationFailed)) return 'it is not valid'
  if (error.reason === 'missing') return 'it lacks exp or iss'
  if (error.reason === 'invalid') return 'it is not valid' // a time that is not a number
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
