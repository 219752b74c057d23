// Secrets by reference: from the environment or AWS Secrets Manager, cached.

import { statSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'

import { LRUCache } from 'lru-cache'

import { describe, log } from '../log.ts'
import type { CoreSettings } from '../settings.ts'
import { secretRefs } from './backends.ts'
import type { SecretRef } from './fields.ts'
import type { Collection } from './models.ts'
import type { DeclarationSettings } from './settings.ts'

const AWS_TIMEOUT_MS = 5000
const AWS_VARIABLES = [
  'AWS_ACCESS_KEY_ID',
  'AWS_PROFILE',
  'AWS_WEB_IDENTITY_TOKEN_FILE',
  'AWS_CONTAINER_CREDENTIALS_FULL_URI',
  'AWS_CONTAINER_CREDENTIALS_RELATIVE_URI',
]
const AWS_FILES = { AWS_SHARED_CREDENTIALS_FILE: 'credentials', AWS_CONFIG_FILE: 'config' }

/** A secret cannot be read; the text names the reference and the variable, never a value. */
export class SecretError extends Error {
  constructor(reference: string, why: string) {
    const name = variableOf(reference)
    super(`cannot read the secret '${reference}'${name && ` (variable ${name})`}: ${why}`)
  }
}

/** The environment variable that replaces a reference; an ARN has none, and so ''. */
export function variableOf(reference: string): string {
  const [path = ''] = reference.split('#')
  if (path.startsWith('env:')) return path.slice(4)
  return path.startsWith('arn:') ? '' : path.replace(/[^A-Za-z0-9]+/g, '_').toUpperCase()
}

/** Whether a variable is in the environment, and not blank. */
export function isSet(variable: string): boolean {
  return Boolean(variable && process.env[variable]?.trim())
}

/** The variables to set before a collection is used; with a real model it always is. */
export function unsetVariables(settings: CoreSettings, collection: Collection): string[] {
  if (settings.model !== 'offline') return []
  const names = secretRefs(collection.backend).map(({ reference }) => variableOf(reference))
  return names.filter((name) => name && !isSet(name))
}

/** Whether the environment or a file of this user has AWS credentials. */
export function hasAwsCredentials(): boolean {
  const files = Object.entries(AWS_FILES).map(
    ([name, file]) => process.env[name] || join(homedir(), '.aws', file),
  )
  const isFile = (file: string) => statSync(file, { throwIfNoEntry: false })?.isFile()
  return AWS_VARIABLES.some(isSet) || files.some(isFile)
}

type Ref = Omit<SecretRef, 'path'>
type Fetch = LRUCache.Fetcher<string, string, Ref>

/**
 * The values of references; each is read once for all callers, again after `secretCacheSeconds`.
 *
 * The last value stays in use while a secret is read again, and when that fails: an outage of AWS
 * Secrets Manager must not stop an agent whose secrets have not changed.
 *
 * A reference is `env:NAME`, an ARN, or a path: of the variable UPPER_SNAKE if that is set,
 * else of AWS Secrets Manager. `#key` behind it takes a field of a secret that is JSON.
 */
export class Secrets {
  readonly #cache: LRUCache<string, string, Ref>
  readonly #isCached: boolean

  constructor({ secretCacheSeconds, secretsPrefix }: DeclarationSettings) {
    this.#isCached = secretCacheSeconds > 0
    // For the cache, 0 would mean without end.
    const ttl = secretCacheSeconds * 1000 || 1
    const fetchMethod: Fetch = (_, last, { context }) => readAgain(last, context, secretsPrefix)
    this.#cache = new LRUCache({ max: 1000, ttl, fetchMethod })
  }

  /**
   * Return the value of a secret. Throws SecretError.
   *
   * If its value `wasRefused`, it may have been rotated, and is read again first.
   */
  async get(ref: Ref, wasRefused = false): Promise<string> {
    const id = JSON.stringify([ref.reference, ref.key, ref.region])
    const allowStale = this.#isCached && !wasRefused
    return (await this.#cache.fetch(id, { context: ref, allowStale, forceRefresh: wasRefused }))!
  }
}

async function readAgain(last: string | undefined, ref: Ref, prefix: string): Promise<string> {
  try {
    return await readSecret(ref, prefix)
  } catch (error) {
    if (last === undefined || !(error instanceof SecretError)) throw error
    log('WARNING', `${error.message}; its last value stays in use`)
    return last
  }
}

async function readSecret(ref: Ref, prefix: string): Promise<string> {
  if (isSet(variableOf(ref.reference))) return readVariable(ref)
  if (ref.reference.startsWith('env:'))
    throw new SecretError(ref.reference, 'the variable is not set')
  return valueIn(await askSecretsManager(ref.reference, ref.region, prefix), ref)
}

/** Return the secret that the variable of a reference holds. Throws SecretError. */
export function readVariable(ref: Ref): string {
  return valueIn(process.env[variableOf(ref.reference)]!.trim(), ref)
}

function valueIn(text: string, { reference, key, expected, accepts }: Ref) {
  const field = key || (/#(.*)/s.exec(reference)?.[1] ?? '')
  let value: unknown = text
  try {
    if (field) value = Object.getOwnPropertyDescriptor(JSON.parse(text), field)?.value
  } catch {
    value = ''
  }
  if (typeof value !== 'string' || !value) {
    const why = field ? `it has no text in the field '${field}'` : 'it is empty'
    throw new SecretError(reference, why)
  }
  if (accepts?.(value) === false) throw new SecretError(reference, `it is not ${expected}`)
  return value
}

async function askSecretsManager(
  reference: string,
  given: string | null,
  prefix: string,
): Promise<string> {
  const [name = ''] = reference.split('#')
  const isArn = name.startsWith('arn:')
  const region = isArn ? name.split(':')[3] : given
  const SecretId = isArn ? name : prefix + name
  const aws = await import('@aws-sdk/client-secrets-manager')
  const client = new aws.SecretsManagerClient({ maxAttempts: 2, ...(region && { region }) })
  try {
    await client.config.region().catch(() => {
      throw new SecretError(reference, 'no AWS region, set AWS_REGION')
    })
    const abortSignal = AbortSignal.timeout(AWS_TIMEOUT_MS)
    const late = new Promise<never>((_, reject) => {
      // The signal ends the request, but not a search for credentials.
      abortSignal.addEventListener('abort', () => reject(abortSignal.reason))
    })
    const sent = client.send(new aws.GetSecretValueCommand({ SecretId }), { abortSignal })
    const { SecretString = '' } = await Promise.race([sent, late])
    return SecretString.trim()
  } catch (error) {
    if (error instanceof SecretError) throw error
    throw new SecretError(reference, `AWS Secrets Manager failed with ${describe(error)}`)
  } finally {
    client.destroy()
  }
}
