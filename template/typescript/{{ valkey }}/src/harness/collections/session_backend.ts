// Fields and checks of a collection that stores sessions in Valkey or Redis.

import { unescape } from 'node:querystring' // never throws, unlike decodeURIComponent

import { z } from 'zod'

import { forms, missingAddress, type SecretRef, text, whole } from './fields.ts'
import type { Document, Findings } from './reader.ts'

export const ValkeyConfig = z.strictObject({
  type: z.literal('valkey'),
  endpoint_secret: forms.reference.optional(),
  port: whole(1, 65_535).default(6379),
  key_prefix: text(
    '[A-Za-z0-9_.:/-]{1,128}',
    '1 to 128 characters of A-Z a-z 0-9 _ . : / -',
  ).default('session'),
  ttl_seconds: whole(1, 2_147_483_647).optional(),
})
export type ValkeyConfig = z.output<typeof ValkeyConfig>

export const backend = { secretRefs, backendFindings }

/** Return the references to resolve before the collection is used. */
export function secretRefs({ endpoint_secret: reference }: ValkeyConfig): SecretRef[] {
  const path = ['backend', 'endpoint_secret']
  const accepts = (secret: string) => readAddress(secret, 0) !== null
  const expected = 'an address such as valkeys://user:p%40ss@host:6379'
  return reference ? [{ reference, key: null, region: null, path, expected, accepts }] : []
}

/** Check combinations of fields. */
function* backendFindings(
  document: Document,
  config: ValkeyConfig,
  status: string,
  lifetime: string,
): Findings {
  if (!config.endpoint_secret) yield* missingAddress(document, 'endpoint_secret', status)
  if (lifetime !== 'session') {
    const message = 'valkey supports only lifetime session: use custom or agentcore_memory.'
    yield document.finding('AML-E042', message, 'backend', 'type')
  } else if (config.ttl_seconds === undefined) {
    const message = 'backend.ttl_seconds is missing: sessions never expire.'
    yield document.finding('AML-W206', message, 'backend', 'ttl_seconds')
  }
}

const HOST = /^((?:[\w-]{1,63}\.)*[\w-]{1,63}\.?|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*)$/

/** Parse a secret that is a URL or a host; return null for any other value. */
export function readAddress(secret: string, defaultPort: number) {
  const isBareIPv6 = secret.split(':').length > 2 && !/[[\]/]/.test(secret)
  const text = isBareIPv6 ? `[${secret}]` : secret
  const url = URL.parse(text.includes('://') ? text : `valkey://${text}`)
  const [, secure] = /^(?:valkey|redis)(s?):$/.exec(url?.protocol ?? '') ?? []
  const host = url?.hostname.replace(/^\[|\]$/g, '') ?? ''
  // An unescaped / or # in a password would make its start the host, and messages quote the host.
  const isSplit = /@/.test(`${url?.pathname}${url?.search}${url?.hash}`)
  const isHost = HOST.test(host) && !/^[0-9]+$/.test(host) && !isSplit
  if (!url || secure === undefined || !isHost) return null
  const username = unescape(url.username)
  const password = unescape(url.password)
  const access = { username, password, ...(secure && { tls: {} }) }
  const db = Number(url.pathname.slice(1)) || 0
  const port = Number(url.port) || defaultPort
  return { server: { host, port, db }, access }
}
