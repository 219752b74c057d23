// The public keys of a token issuer: from AUTH_JWKS_URI, or OpenID Connect Discovery 1.0.

import { type CryptoKey, importJWK, type JWK } from 'jose'

import { describe, log } from '../log.ts'
import { type AuthSettings, LOOPBACK_ADDRESS, PUBLIC_ADDRESS } from './settings.ts'

// Key types, their curves and the accepted algorithms. Excludes "none" and shared secrets.
// RFC 9864 renames EdDSA with the curve Ed25519 to Ed25519.
const KINDS = [
  { kty: 'RSA', crv: undefined, algorithms: ['RS256'] },
  { kty: 'EC', crv: 'P-256', algorithms: ['ES256'] },
  { kty: 'OKP', crv: 'Ed25519', algorithms: ['EdDSA', 'Ed25519'] },
]
export const ALGORITHMS = KINDS.flatMap(({ algorithms }) => algorithms)
const SECONDS = 5 // for each of the two requests
const FRESH_SECONDS = 600 // after this time, turns refresh the keys in the background
const COOLDOWN_SECONDS = 5 // between the end of a refresh and the next
const MAX_BYTES = 1_000_000
const MAX_KEYS = 100
const MAX_CANDIDATES = 20 // keys whose signature is checked for one token
const MIN_RSA_BITS = 2048 // RFC 7518, section 3.3

/** The keys of the issuer could not be read. The message gives the reason. */
export class IssuerUnavailable extends Error {}

type Fields = Record<string, unknown>

/** A public key for signatures with one of `algorithms`; `id` is its `kid`. */
interface Key {
  readonly id: string | undefined
  readonly algorithms: readonly string[]
  readonly publicKey: CryptoKey
}

/** The keys of one issuer. While it is down, the last keys stay in use. */
export class Keys {
  readonly #issuer: string
  readonly #uri: string
  #keys: readonly Key[] = []
  #readAt = -Infinity
  #triedAt = -Infinity
  #refreshing: Promise<void> | null = null

  constructor({ authIssuer, authJwksUri }: AuthSettings) {
    this.#issuer = authIssuer
    this.#uri = authJwksUri
  }

  /**
   * Yield the keys that may have signed a token with this `kid` and `alg`.
   *
   * If the caller needs more, read the keys again and yield the new candidates. Throws
   * IssuerUnavailable if no keys were ever read.
   */
  async *candidates(id: string | undefined, algorithm: string): AsyncGenerator<CryptoKey> {
    const readAt = this.#readAt
    const isStale = seconds() - readAt > FRESH_SECONDS
    if (this.#keys.length > 0 && isStale) void this.#refresh().catch(() => {})
    yield* this.#find(id, algorithm)
    await this.#refresh()
    if (this.#keys.length === 0) throw new IssuerUnavailable('its keys have never been read')
    if (this.#readAt !== readAt) yield* this.#find(id, algorithm)
  }

  /** Read the keys. Throws IssuerUnavailable. */
  async read(): Promise<void> {
    const { keys: candidates } = await get(this.#uri || (await this.#discover()))
    const keys: Key[] = []
    for (const value of Array.isArray(candidates) ? candidates.slice(0, MAX_KEYS) : []) {
      const key = await parseKey(value)
      if (key) keys.push(key)
    }
    if (keys.length === 0) {
      throw new IssuerUnavailable('the issuer has no key for RS256, ES256 or EdDSA')
    }
    this.#keys = keys
    this.#readAt = seconds()
  }

  /** Return the keys for an algorithm. Without an id, any of them may be the right key. */
  #find(id: string | undefined, algorithm: string): CryptoKey[] {
    return this.#keys
      .filter((key) => key.algorithms.includes(algorithm) && (id === undefined || id === key.id))
      .slice(0, MAX_CANDIDATES)
      .map((key) => key.publicKey)
  }

  /** Return the `jwks_uri` of the issuer. Throws IssuerUnavailable. */
  async #discover(): Promise<string> {
    const place = `${this.#issuer.replace(/\/+$/, '')}/.well-known/openid-configuration`
    const metadata = await get(place)
    if (metadata.issuer !== this.#issuer) {
      const hint = 'set AUTH_JWKS_URI if needed'
      throw new IssuerUnavailable(`${place} names a different issuer; ${hint}`)
    }
    const uri = String(metadata.jwks_uri)
    const isLocal = this.#issuer.startsWith('http:') && LOOPBACK_ADDRESS.test(uri)
    if (!isLocal && !PUBLIC_ADDRESS.test(uri)) {
      throw new IssuerUnavailable(`${place}: jwks_uri must be an https address`)
    }
    return uri
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

/**
 * Return a key of a JSON Web Key Set (RFC 7517), or null if it cannot verify tokens.
 *
 * A member that is null counts as absent.
 */
async function parseKey(value: unknown): Promise<Key | null> {
  if (typeof value !== 'object' || value === null) return null
  const members = Object.entries(value).filter(([, member]) => member !== null)
  const jwk: Fields = Object.fromEntries(members)
  const { alg, crv, kid, kty, use = 'sig', key_ops: operations = ['verify'] } = jwk
  const curve = kty === 'RSA' ? undefined : crv
  const algorithms = KINDS.find((kind) => kind.kty === kty && kind.crv === curve)?.algorithms
  if (!algorithms || !algorithms.some((name) => name === (alg ?? algorithms[0]))) return null
  if (use !== 'sig' || !Array.isArray(operations) || !operations.includes('verify')) return null
  const { e, n, x, y } = jwk
  try {
    const publicMembers = { kty, crv: curve, n, e, x, y } as JWK
    const publicKey = (await importJWK(publicMembers, algorithms[0])) as CryptoKey
    const { modulusLength = MIN_RSA_BITS } = publicKey.algorithm as { modulusLength?: number }
    if (modulusLength < MIN_RSA_BITS) return null
    return { id: typeof kid === 'string' ? kid : undefined, algorithms, publicKey }
  } catch {
    return null
  }
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
    // The decoder removes a byte order mark, which some servers send.
    const text = new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks))
    const value: unknown = JSON.parse(text)
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
