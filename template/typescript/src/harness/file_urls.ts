// Files by URL: fetches them, only from the hosts in FILE_HOSTS.

import { lookup, type LookupAddress } from 'node:dns'
import { once } from 'node:events'
import { Agent as HttpAgent, ClientRequest, type IncomingMessage } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import { BlockList, isIP, isIPv4, type LookupFunction } from 'node:net'
import { urlToHttpOptions } from 'node:url'

import { AgentError, File, FileUrl } from './contract.ts'
import { withinTime } from './deadline.ts'
import { FORMATS, plainType, tooLarge, typeOf } from './files.ts'
import { describe } from './log.ts'
import type { CoreSettings } from './settings.ts'

const FETCH_SECONDS = 30
const MAX_REDIRECTS = 3
const REDIRECTS = [301, 302, 303, 307, 308]
const HEADERS = { Accept: '*/*', 'Accept-Encoding': 'identity', 'User-Agent': 'agent' }
// Without user, fragment, backslash, white space, and escapes in the host.
// eslint-disable-next-line no-control-regex -- a parser would drop these characters
const URL_FORM = /^https?:\/\/([^\x00- \x7f\\/?#@%]+)([/?][^\x00- \x7f\\#]*)?$/i
const INVALID = 'send an https URL without user name and fragment.'
const NOT_LISTED = 'set FILE_HOSTS to allow this host.'
// Addresses of this machine, and of services that return a machine's credentials.
const LOCAL_NETWORKS: [address: string, prefix: number][] = [
  ['0.0.0.0', 8],
  ['100.100.100.200', 32], // Alibaba Cloud
  ['127.0.0.0', 8],
  ['168.63.129.16', 32], // Azure
  ['169.254.0.0', 16],
  ['224.0.0.0', 3], // multicast, reserved and broadcast
]
const REFUSED = new BlockList()
REFUSED.addSubnet('::', 96, 'ipv6')
REFUSED.addSubnet('2002::', 16, 'ipv6') // contains IPv4 addresses
REFUSED.addSubnet('fd00:ec2::', 32, 'ipv6') // AWS
REFUSED.addSubnet('fe80::', 10, 'ipv6')
REFUSED.addSubnet('ff00::', 8, 'ipv6')
for (const [address, prefix] of LOCAL_NETWORKS) {
  REFUSED.addSubnet(address, prefix, 'ipv4') // also if mapped to IPv6
  // A translator (NAT64) sends packets for these addresses to the IPv4 addresses.
  REFUSED.addSubnet(`64:ff9b::${address}`, 96 + prefix, 'ipv6')
}
const LOOPBACK = new BlockList()
LOOPBACK.addSubnet('127.0.0.0', 8, 'ipv4')
LOOPBACK.addAddress('::1', 'ipv6')

type Limits = Pick<CoreSettings, 'fileHosts' | 'maxFiles' | 'maxFileBytes'>
/** Called with the number of received bytes. */
type Count = (bytes: number) => void

/** The reason, for the caller; the cause is for the log. */
class NotFetchedError extends Error {}

/** Check the URLs of a prompt's files, without a request. Throws `invalid_request`. */
export function checkUrls(files: readonly File[], { fileHosts }: Limits): void {
  for (const [index, file] of files.entries()) {
    try {
      if (file instanceof FileUrl) parse(file.url, fileHosts)
    } catch (error) {
      throw asAgentError(index, error)
    }
  }
}

/**
 * Return the files with their data; fetch all URLs at the same time.
 *
 * `checkSize` is called with the number of bytes of all files so far. Throws its errors, and
 * AgentError: `invalid_request` for a file that cannot be fetched, or `payload_too_large`.
 */
export async function fetchFiles(
  files: readonly File[],
  settings: Limits & Pick<CoreSettings, 'turnTimeoutSeconds'>,
  signal: AbortSignal,
  checkSize: Count,
): Promise<File[]> {
  let total = files.reduce((sum, { data }) => sum + data.length, 0)
  const count: Count = (bytes) => {
    total += bytes
    checkSize(total)
  }
  const pending = new Set<number>()
  const fetchOne = async (file: File, index: number, stop: AbortSignal) => {
    if (!(file instanceof FileUrl)) return file
    pending.add(index)
    try {
      return await fetchFile(file, settings, count, stop)
    } catch (error) {
      throw asAgentError(index, error)
    } finally {
      pending.delete(index)
    }
  }
  const seconds = Math.min(FETCH_SECONDS, settings.turnTimeoutSeconds)
  const late = () => {
    if (seconds < FETCH_SECONDS) return new AgentError('turn_timeout')
    const [index = 0] = pending
    const message = `the host did not send the file within ${seconds} seconds.`
    return asAgentError(index, new NotFetchedError(message))
  }
  const fetchAll = (stop: AbortSignal) => {
    return Promise.all(files.map((file, index) => fetchOne(file, index, stop)))
  }
  return withinTime(seconds, signal, fetchAll, late)
}

function asAgentError(index: number, error: unknown): Error {
  if (error instanceof AgentError) return error
  const isKnown = error instanceof NotFetchedError
  const reason = isKnown ? error.message : 'the host did not send the file.'
  const detail = isKnown ? '' : describe(error)
  return new AgentError('invalid_request', `files[${index}].url: ${reason}`, detail)
}

async function fetchFile(
  file: FileUrl,
  limits: Limits,
  count: Count,
  stop: AbortSignal,
): Promise<File> {
  let url = parse(file.url, limits.fileHosts)
  for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
    const response = await get(url, stop)
    const { statusCode = 0, headers } = response
    if (!REDIRECTS.includes(statusCode) || !headers.location) {
      const data = await read(response, file, limits, count)
      return new File(mediaTypeOf(file, data, headers['content-type']), data, file.name)
    }
    response.destroy()
    url = redirect(url, headers.location, limits.fileHosts)
  }
  throw new NotFetchedError(`the host redirects more than ${MAX_REDIRECTS} times.`)
}

/** Return the media type of the request, or that of the content. */
function mediaTypeOf({ mediaType }: FileUrl, data: Uint8Array, declared = ''): string {
  if (mediaType) return mediaType
  const found = typeOf(data)
  const type = plainType(declared)
  if (found === 'text/plain' && type.startsWith('text/') && type in FORMATS) return type
  return found || 'application/octet-stream'
}

function redirect(url: URL, location: string, hosts: readonly string[]): URL {
  try {
    return parse(new URL(location, url).href, hosts)
  } catch {
    throw new NotFetchedError('the host redirects to a URL that FILE_HOSTS does not allow.')
  }
}

async function read(
  response: IncomingMessage,
  { label }: FileUrl,
  limits: Limits,
  count: Count,
): Promise<Uint8Array> {
  const { statusCode, headers } = response
  try {
    if (statusCode !== 200) throw new NotFetchedError(`the host answered with HTTP ${statusCode}.`)
    const encoding = headers['content-encoding'] ?? 'identity'
    if (encoding.toLowerCase() !== 'identity') {
      throw new NotFetchedError('the host sent a compressed file.')
    }
    if (Number(headers['content-length']) > limits.maxFileBytes) throw tooLarge(label, limits)
    const chunks: Uint8Array[] = []
    let size = 0
    for await (const chunk of response as AsyncIterable<Uint8Array>) {
      size += chunk.length
      if (size > limits.maxFileBytes) throw tooLarge(label, limits)
      count(chunk.length)
      chunks.push(chunk)
    }
    return Buffer.concat(chunks)
  } finally {
    response.destroy()
  }
}

/** Send a request without a proxy; return the response when its headers have arrived. */
async function get(url: URL, signal: AbortSignal): Promise<IncomingMessage> {
  // Instrumentations of `request` and `fetch` would record the URL in spans.
  const request = new ClientRequest({
    ...urlToHttpOptions(url),
    agent: url.protocol === 'http:' ? new HttpAgent() : new HttpsAgent(),
    lookup: lookUp,
    headers: HEADERS,
    signal,
  })
  request.on('error', () => {}) // also after the response
  request.end()
  const [response] = (await once(request, 'response')) as [IncomingMessage]
  response.on('error', () => {}) // also after a redirect
  return response
}

/** Return the addresses of a host, which are the only addresses to connect to. */
const lookUp: LookupFunction = (hostname, options, callback) => {
  const isAllowed = ({ address, family }: LookupAddress) => {
    const bare = address.replace(/%.*/, '') // without the interface
    const kind = family === 6 ? 'ipv6' : 'ipv4'
    return hostname === 'localhost' ? LOOPBACK.check(bare, kind) : !REFUSED.check(bare, kind)
  }
  lookup(hostname, { ...options, all: true }, (error, addresses) => {
    const [first] = addresses ?? []
    if (error || !first) {
      callback(error ?? new NotFetchedError('the host has no address.'), [])
    } else if (!addresses.every(isAllowed)) {
      const message = 'the agent must not connect to the address of this host.'
      callback(new NotFetchedError(message), [])
    } else if (options.all) {
      callback(null, addresses)
    } else {
      callback(null, first.address, first.family)
    }
  })
}

/** Return a URL that FILE_HOSTS allows. Only hosts on this machine may use http. */
function parse(text: string, hosts: readonly string[]): URL {
  const [, authority = ''] = URL_FORM.exec(text) ?? []
  const url = authority && text.isWellFormed() ? URL.parse(text) : null
  // The parser also accepts other forms of an IPv4 address, such as a single number.
  const isOtherForm = url && isIPv4(url.hostname) && !authority.startsWith(url.hostname)
  if (!url || isOtherForm) throw new NotFetchedError(INVALID)
  if (!hosts.some((entry) => allows(entry, url))) throw new NotFetchedError(NOT_LISTED)
  if (url.protocol === 'http:' && !isLocal(url.hostname)) throw new NotFetchedError(INVALID)
  return url
}

/** Whether an entry of FILE_HOSTS is the host and port of a URL; ports have a default. */
function allows(entry: string, { hostname, port, protocol }: URL): boolean {
  const [, name = '', listedPort = ''] = /^(.*?)(?::([0-9]+))?$/.exec(entry) ?? []
  const listed = URL.parse(`https://${name}`)
  const standard = protocol === 'http:' ? 80 : 443
  const hasPort = Number(port || standard) === Number(listedPort || standard)
  return hasPort && listed?.hostname === hostname
}

function isLocal(hostname: string): boolean {
  const address = hostname.replace(/^\[|\]$/g, '')
  const version = isIP(address)
  if (version === 0) return hostname === 'localhost'
  return LOOPBACK.check(address, version === 6 ? 'ipv6' : 'ipv4')
}
