// The public keys of a token issuer, from OpenID Connect Discovery 1.0.

import { createLocalJWKSet, errors, importJWK, type JWK, type JWTVerifyGetKey } from 'jose'

import { describe, log } from '../log.ts'
import { LOOPBACK, PUBLIC } from './settings.ts'

export const ALGORITHMS = ['RS256', 'ES256', 'EdDSA'] // excludes "none" and shared secrets
const SECONDS = 5 // for each of the two requests
const FRESH_SECONDS = 600 // after this time, turns refresh the keys in the background
const COOLDOWN_SECONDS = 5 // between the end of a refresh and the next
const MAX_BYTES = 1_000_000
const MAX_KEYS = 100

/** The keys of the issuer could not be read. The message gives the reason. */
export class IssuerUnavailable extends Error {}

type KeySet = ReturnType<typeof createLocalJWKSet>
type Fields = Record<string, unknown>

/** The keys of one issuer. While it is down, the last keys stay in use. */
export class Keys {
  readonly #issuer: string
  #keys: KeySet | null = null
  #readAt = -Infinity
  #triedAt = -Infinity
  #refreshing: Promise<void> | null = null

  constructor(issuer: string) {
    this.#issuer = issuer
  }

  /** Return the key for the header of a token. Throws IssuerUnavailable and errors from jose. */
  readonly find: JWTVerifyGetKey = async (head, token) => {
    if (!this.#keys) await this.#refresh()
    else if (seconds() - this.#readAt > FRESH_SECONDS) void this.#refresh().catch(() => {})
    const keys = this.#keys
    if (!keys) throw new IssuerUnavailable('its keys have never been read')
    try {
      return await keys(head, token)
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error
    }
    await this.#refresh()
    return await (this.#keys ?? keys)(head, token)
  }

  /** Read the keys. Throws IssuerUnavailable. */
  async read(): Promise<void> {
    const place = `${this.#issuer.replace(/\/+$/, '')}/.well-known/openid-configuration`
    const metadata = await get(place)
    if (metadata.issuer !== this.#issuer)
      throw new IssuerUnavailable(`${place} names a different issuer`)
    const uri = String(metadata.jwks_uri)
    if (!this.#isAllowed(uri)) {
      throw new IssuerUnavailable(`${place}: jwks_uri must be an https address`)
    }
    const { keys: candidates } = await get(uri)
    const keys: JWK[] = []
    for (const key of Array.isArray(candidates) ? candidates.slice(0, MAX_KEYS) : []) {
      if (await isUsable(key)) keys.push(key)
    }
    if (keys.length === 0) {
      throw new IssuerUnavailable('the issuer has no key for RS256, ES256 or EdDSA')
    }
    this.#keys = createLocalJWKSet({ keys })
    this.#readAt = seconds()
  }

  /** Whether to read keys from this address: as for AUTH_ISSUER, but it may have a query. */
  #isAllowed(uri: string): boolean {
    const [address = ''] = uri.split('?')
    const isHere = this.#issuer.startsWith('http:') && new RegExp(LOOPBACK).test(address)
    return (isHere || new RegExp(PUBLIC).test(address)) && !/[\s#]/.test(uri)
  }

  /** Read the keys, unless the last attempt was recent. All callers await the same attempt. */
  async #refresh(): Promise<void> {
    if (this.#refreshing) return await this.#refreshing
    if (seconds() - this.#triedAt < COOLDOWN_SECONDS) return
    this.#refreshing = this.read().catch((error) => {
      if (!(error instanceof IssuerUnavailable)) throw error
      log('WARNING', `the keys of AUTH_ISSUER were not read: ${error.message}`)
    })
    await this.#refreshing.finally(() => {
      this.#triedAt = seconds()
      this.#refreshing = null
    })
  }
}

/** Whether a key can verify signatures with an accepted algorithm. */
async function isUsable(key: unknown): Promise<boolean> {
  if (typeof key !== 'object' || key === null) return false
  const { use = 'sig', kty, alg, crv } = key as JWK
  const algorithm =
    kty === 'RSA' ? 'RS256' : crv === 'P-256' ? 'ES256' : crv === 'Ed25519' ? 'EdDSA' : ''
  if (use !== 'sig' || !algorithm || (alg ?? algorithm) !== algorithm) return false
  return importJWK(key as JWK, algorithm).then(
    () => true,
    () => false,
  )
}

/** Return the JSON object at an address. Throws IssuerUnavailable. */
async function get(url: string): Promise<Fields> {
  try {
    const signal = AbortSignal.timeout(SECONDS * 1000)
    const answer = await fetch(url, { signal, redirect: 'manual' })
    if (answer.status !== 200) throw new IssuerUnavailable(`${url}: HTTP ${answer.status}`)
    const chunks: Uint8Array[] = []
    let size = 0
    for await (const chunk of answer.body ?? []) {
      size += chunk.length
      if (size > MAX_BYTES) {
        throw new IssuerUnavailable(`${url}: the response exceeds ${MAX_BYTES} bytes`)
      }
      chunks.push(chunk)
    }
    const value: unknown = JSON.parse(Buffer.concat(chunks).toString())
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Fields
  } catch (error) {
    if (error instanceof IssuerUnavailable) throw error
    throw new IssuerUnavailable(`${url}: ${describe(error)}`)
  }
  throw new IssuerUnavailable(`${url}: the response is not a JSON object`)
}

function seconds(): number {
  return performance.now() / 1000
}
