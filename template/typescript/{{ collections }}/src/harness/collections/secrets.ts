// Read secrets by reference from the environment or AWS Secrets Manager, and cache them.
//
// A reference is `env:NAME`, an ARN or a path. For a path, the variable of the same name in upper
// case has priority (`secrets/valkey/sessions`: SECRETS_VALKEY_SESSIONS). If it is not set, the
// path names a secret in AWS Secrets Manager. `#key` selects a field of a JSON secret.

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

/** A secret cannot be read. The message has its reference and variable, never its value. */
export class SecretError extends Error {
  constructor(reference: string, reason: string) {
    const name = variableOf(reference)
    super(`cannot read the secret '${reference}'${name && ` (variable ${name})`}: ${reason}`)
  }
}

/** Return the environment variable that can hold the secret; '' for an ARN. */
export function variableOf(reference: string): string {
  const [path = ''] = reference.split('#')
  if (path.startsWith('env:')) return path.slice(4)
  return path.startsWith('arn:') ? '' : path.replace(/[^A-Za-z0-9]+/g, '_').toUpperCase()
}

/** Whether an environment variable has a value that is not blank. */
export function isSet(variable: string): boolean {
  return Boolean(variable && process.env[variable]?.trim())
}

/**
 * Return the variables to set before the echo model uses a collection.
 *
 * Until then, its data stays local. With any other model, the collection is always used.
 */
export function unsetVariables(settings: CoreSettings, collection: Collection): string[] {
  if (settings.model !== 'offline') return []
  const names = secretRefs(collection.backend).map(({ reference }) => variableOf(reference))
  return names.filter((name) => name && !isSet(name))
}

/** Whether the environment or the user's AWS files provide credentials. */
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
 * Caches secrets for `secretCacheSeconds`; concurrent callers share a read.
 *
 * The last value stays in use during a refresh, and if the refresh fails: an outage of AWS Secrets
 * Manager must not stop an agent whose secrets have not changed.
 */
export class Secrets {
  readonly #cache: LRUCache<string, string, Ref>
  readonly #isCached: boolean

  constructor({ secretCacheSeconds, secretsPrefix }: DeclarationSettings) {
    this.#isCached = secretCacheSeconds > 0
    // The cache reads a ttl of 0 as "never expires".
    const ttl = secretCacheSeconds * 1000 || 1
    const fetchMethod: Fetch = (_, last, { context }) => refresh(last, context, secretsPrefix)
    this.#cache = new LRUCache({ max: 1000, ttl, fetchMethod })
  }

  /**
   * Return a secret within a time limit. Throws SecretError.
   *
   * `wasRefused` forces a refresh: the service may have rotated the secret.
   */
  async get(ref: Ref, wasRefused = false): Promise<string> {
    const id = JSON.stringify([ref.reference, ref.key, ref.region])
    const allowStale = this.#isCached && !wasRefused
    return (await this.#cache.fetch(id, { context: ref, allowStale, forceRefresh: wasRefused }))!
  }
}

async function refresh(last: string | undefined, ref: Ref, prefix: string): Promise<string> {
  try {
    return await readSecret(ref, prefix)
  } catch (error) {
    if (last === undefined || !(error instanceof SecretError)) throw error
    log('WARNING', `${error.message}; using its last value`)
    return last
  }
}

async function readSecret(ref: Ref, prefix: string): Promise<string> {
  if (isSet(variableOf(ref.reference))) return readVariable(ref)
  if (ref.reference.startsWith('env:'))
    throw new SecretError(ref.reference, 'the variable is not set')
  return valueIn(await readSecretsManager(ref.reference, ref.region, prefix), ref)
}

/** Return the secret from the reference's environment variable. Throws SecretError. */
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
    const reason = field ? `its field '${field}' has no text` : 'it is empty'
    throw new SecretError(reference, reason)
  }
  if (accepts?.(value) === false) throw new SecretError(reference, `it is not ${expected}`)
  return value
}

async function readSecretsManager(
  reference: string,
  defaultRegion: string | null,
  prefix: string,
): Promise<string> {
  const [name = ''] = reference.split('#')
  const isArn = name.startsWith('arn:')
  const region = isArn ? name.split(':')[3] : defaultRegion
  const SecretId = isArn ? name : prefix + name
  const aws = await import('@aws-sdk/client-secrets-manager')
  const client = new aws.SecretsManagerClient({ maxAttempts: 2, ...(region && { region }) })
  try {
    await client.config.region().catch(() => {
      throw new SecretError(reference, 'no AWS region is set: set AWS_REGION')
    })
    const abortSignal = AbortSignal.timeout(AWS_TIMEOUT_MS)
    const timeout = new Promise<never>((_, reject) => {
      // The signal aborts the request, but not the lookup of credentials.
      abortSignal.addEventListener('abort', () => reject(abortSignal.reason))
    })
    const reply = client.send(new aws.GetSecretValueCommand({ SecretId }), { abortSignal })
    const { SecretString = '' } = await Promise.race([reply, timeout])
    return SecretString.trim()
  } catch (error) {
    if (error instanceof SecretError) throw error
    throw new SecretError(reference, `AWS Secrets Manager failed with ${describe(error)}`)
  } finally {
    client.destroy()
  }
}
