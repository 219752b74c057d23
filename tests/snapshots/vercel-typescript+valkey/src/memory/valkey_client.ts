// The connection to Valkey or Redis: it fails in time, and sends nothing a second time.

import type { Cluster, Redis, RedisOptions } from 'iovalkey'

import { Unavailable } from './backends.ts'
import { bounded } from './bounded.ts'
import type { Secrets } from './secrets.ts'

type Client = Redis | Cluster
type Server = { host: string; port: number; db: number }

// A connection that broke is not mended: the next call opens another one.
const ONCE = {
  lazyConnect: true,
  enableReadyCheck: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  family: 0,
} as const

/** What an address led to; `end` closes it, and is aborted when it breaks. */
interface Open {
  readonly address: string
  readonly end: AbortController
  readonly client: Promise<Client>
}

/** A server, or a cluster of them, whose address is a secret and may change. */
export class ValkeyClient {
  readonly #secrets: Secrets
  readonly #reference: string
  readonly #port: number
  readonly #seconds: number
  #open: Open | null = null

  constructor(reference: string, port: number, seconds: number, secrets: Secrets) {
    this.#secrets = secrets
    this.#reference = reference
    this.#port = port
    this.#seconds = seconds
  }

  /** What `use` returns of the client. Throws Unavailable, at the latest after `seconds`. */
  async run<T>(use: (client: Client) => Promise<T>): Promise<T> {
    let open: Open | undefined
    let isSent = false
    try {
      return await bounded(this.#seconds, async (stop) => {
        open = this.#openAt(await this.#secrets.get(this.#reference))
        const client = await open.client
        stop.throwIfAborted()
        isSent = true
        return await use(client)
      })
    } catch (error) {
      const isReply = (error as Error).name === 'ReplyError'
      if (!isReply) open?.end.abort()
      if (error instanceof Unavailable && error.isCertain) throw error
      throw new Unavailable(`valkey: ${reasonOf(error as Error)}`, isReply || !isSent)
    }
  }

  /** Close what is open. */
  close(): void {
    this.#open?.end.abort()
  }

  #openAt(address: string): Open {
    const old = this.#open
    if (old?.address === address && !old.end.signal.aborted) return old
    const [server, access] = this.#read(address)
    // What was asked at the old address is still answered.
    if (old) setTimeout(() => old.end.abort(), this.#seconds * 1000)
    const end = new AbortController()
    this.#open = { address, end, client: connect(server, access, end) }
    return this.#open
  }

  #read(address: string): [Server, RedisOptions] {
    const isBareIPv6 = /^[^[/]*:.*:[^/]*$/.test(address)
    const host = isBareIPv6 ? `[${address}]` : address
    const url = URL.parse(address.includes('://') ? address : `valkey://${host}`)
    const [, secure] = /^(?:valkey|redis)(s?):$/.exec(url?.protocol ?? '') ?? []
    if (!url?.hostname || secure === undefined) {
      const what = 'is no address such as valkeys://host:6379'
      throw new Unavailable(`secret '${this.#reference}' ${what}`, true)
    }
    const [username, password] = [url.username, url.password].map((text) => unescape(text))
    const access = { username, password, ...(secure && { tls: {} }) } as RedisOptions
    const db = Number(url.pathname.slice(1)) || 0
    const port = Number(url.port) || this.#port
    return [{ host: url.hostname.replace(/^\[|\]$/g, ''), port, db }, access]
  }
}

/** Connect to a server and, when it is one of a cluster, to the cluster. */
async function connect(server: Server, access: RedisOptions, end: AbortController) {
  const { Cluster, Redis } = await import('iovalkey')
  const common = { ...ONCE, ...access }
  const first = new Redis({ ...common, ...server, retryStrategy: () => null })
  await begin(first, end)
  const about = await first.info('cluster').catch((error: Error) => {
    if (error.message.startsWith('NOPERM')) return ''
    throw error
  })
  if (!/^cluster_enabled:1/m.test(about)) return first
  const slots = await first.cluster('SLOTS')
  if (slots.every(([, , node]) => !node?.[0])) return first // one server, which knows no other
  first.removeAllListeners('end').disconnect()
  const cluster = new Cluster([server], {
    lazyConnect: true,
    redisOptions: common,
    retryDelayOnFailover: 0,
    clusterRetryStrategy: () => null,
    dnsLookup: (name, done) => done(null, name), // certificates are for names
  })
  await begin(cluster, end)
  return cluster
}

async function begin(client: Client, end: AbortController): Promise<void> {
  let why: Error | undefined
  client.on('error', (error: Error) => (why = error)) // it would be printed otherwise
  client.once('end', () => end.abort())
  end.signal.throwIfAborted()
  end.signal.addEventListener('abort', () => client.status !== 'end' && client.disconnect())
  try {
    await client.connect()
  } catch (error) {
    throw why ?? error
  }
}

/** What kind of error it was; the text of a reply may quote what was sent. */
function reasonOf(error: Error): string {
  if (error instanceof Unavailable) return error.message
  const [word = ''] = error.message.split(' ')
  if (error.name === 'ReplyError') return /^[A-Z]+$/.test(word) ? word : 'ERR'
  return (error as NodeJS.ErrnoException).code ?? 'the connection was closed'
}
