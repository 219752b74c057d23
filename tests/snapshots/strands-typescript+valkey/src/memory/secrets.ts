// Secrets by reference: from the environment or AWS Secrets Manager, kept for a while.

import { LRUCache } from 'lru-cache'

import { Unavailable } from './backends.ts'
import { bounded } from './bounded.ts'
import { causeOf, MISSING, needRegion, told } from './causes.ts'
import type { Collection } from './models.ts'
import type { Options } from './options.ts'

/** A secret cannot be had; the text names the reference and the variable, never a value. */
export class SecretError extends Unavailable {
  constructor(reference: string, why: string) {
    const name = variableOf(reference)
    super(`secret '${reference}': ${why}${name && `; locally, set ${name}`}`, true)
  }
}

/** The environment variable that stands for a reference; an ARN has none, and so ''. */
export function variableOf(reference: string): string {
  const [path = ''] = reference.split('#')
  if (path.startsWith('env:')) return path.slice(4)
  return path.startsWith('arn:') ? '' : path.replace(/[^A-Za-z0-9]+/g, '_').toUpperCase()
}

type Looked = [reference: string, key?: string | null, region?: string | null]

/**
 * What references stand for; each is looked up again when its time is over.
 *
 * A reference is `env:NAME`, an ARN, or a path: of the variable UPPER_SNAKE if that is set,
 * else of AWS Secrets Manager. `#key` behind it takes a field of a secret that is JSON.
 */
export class Secrets {
  readonly #seconds: number
  readonly #known: LRUCache<string, string>

  constructor(options: Options) {
    this.#seconds = options.storeTimeoutSeconds
    // For the cache a time of 0 would be for ever.
    this.#known = new LRUCache({ max: 1000, ttl: options.secretCacheSeconds * 1000 || 1 })
  }

  /** The secret, or its field `key`. Throws SecretError. */
  async get(...[reference, key, region]: Looked): Promise<string> {
    const what = JSON.stringify([reference, key, region])
    const known = this.#known.get(what)
    if (known !== undefined) return known
    const value = await this.#read(reference, key || /#(.*)/s.exec(reference)?.[1] || '', region)
    this.#known.set(what, value)
    return value
  }

  async #read(reference: string, field: string, region?: string | null): Promise<string> {
    const local = process.env[variableOf(reference)]?.trim()
    if (!local && reference.startsWith('env:')) throw new SecretError(reference, 'it is not set')
    const text = local || (await this.#askAws(reference, region))
    let value: unknown
    try {
      value = field ? Object.getOwnPropertyDescriptor(JSON.parse(text), field)?.value : text
    } catch {
      value = ''
    }
    if (typeof value === 'string' && value) return value
    throw new SecretError(reference, field ? `it has no text '${field}'` : 'it is empty')
  }

  async #askAws(reference: string, given?: string | null): Promise<string> {
    const [SecretId = ''] = reference.split('#')
    const region = SecretId.startsWith('arn:') ? SecretId.split(':')[3] : given
    try {
      return await bounded(this.#seconds, async (abortSignal) => {
        const aws = await import('@aws-sdk/client-secrets-manager')
        const client = new aws.SecretsManagerClient({ maxAttempts: 2, ...(region && { region }) })
        await needRegion(client)
        const asked = client.send(new aws.GetSecretValueCommand({ SecretId }), { abortSignal })
        const { SecretString = '' } = await asked.finally(() => client.destroy())
        return SecretString.trim()
      })
    } catch (error) {
      const { name, message } = error as Error
      const why = error instanceof Unavailable ? message : causeOf(error) || name
      throw new SecretError(reference, why === MISSING ? why : told('AWS Secrets Manager', why))
    }
  }
}

/** What a collection has looked up: references, each with a field of it and a region. */
export function referencesOf({ backend }: Collection): Looked[] {
  if (backend.type === 'valkey') return [[backend.endpoint_secret ?? '']]
  if (backend.type === 's3') return [[backend.bucket_secret ?? '']]
  if (backend.type === 'agentcore_memory') return [[backend.memory_id_secret ?? '']]
  const way = backend.type === 'custom' ? backend.transport : null
  if (!way) return []
  const address = way.type === 'rest-api' ? way.base_url : (way.function_arn ?? way.function_id)
  const found: Looked[] = address?.startsWith('env:') ? [[address]] : []
  const { source, name, secret_id: id, key = null, region = null } = way.credentials
  const reference = source === 'env' ? `env:${name}` : id
  if (source && reference) found.push([reference, key, region])
  return found
}
