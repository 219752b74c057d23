// The address of a Valkey in a secret, and how an error names it without its password.

import { unescape } from 'node:querystring' // which throws for no escape

import type { RedisOptions } from 'iovalkey'

import { Unavailable } from './backends.ts'

const HOST = /^((?:[\w-]{1,63}\.)*[\w-]{1,63}\.?|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*)$/

export type Server = { host: string; port: number; db: number }
type Address = { server: Server; access: RedisOptions; name: string }

/** What a secret says: a URL or, with this port, a host. Throws Unavailable when it is neither. */
export function readAddress(secret: string, reference: string, given: number): Address {
  const isUrl = secret.includes('://')
  const isBareIPv6 = /^[^[/]*:.*:[^/]*$/.test(secret)
  const url = URL.parse(isUrl ? secret : `valkey://${isBareIPv6 ? `[${secret}]` : secret}`)
  const [, secure] = /^(?:valkey|redis)(s?):$/.exec(url?.protocol ?? '') ?? []
  const host = url?.hostname.replace(/^\[|\]$/g, '') ?? ''
  // After an @ further on would be the host, and what is taken for it a password.
  const isSplit = /@/.test(`${url?.pathname}${url?.search}${url?.hash}`)
  if (!url || secure === undefined || isSplit || !HOST.test(host)) {
    const what = 'is no address such as valkeys://user:p%40ss@host:6379'
    throw new Unavailable(`secret '${reference}' ${what}`, true)
  }
  const [username, password] = [url.username, url.password].map((text) => unescape(text))
  const access = { username, password, ...(secure && { tls: {} }) } as RedisOptions
  const [db, port] = [Number(url.pathname.slice(1)) || 0, Number(url.port) || given]
  // What is no URL could be a password, by mistake.
  const name = isUrl ? `valkey at ${url.hostname}:${port}` : `valkey of secret '${reference}'`
  return { server: { host, port, db }, access, name }
}
