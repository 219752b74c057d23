// The connection to Valkey or Redis: it fails in time, and sends nothing a second time.

import type { Cluster, Redis, RedisOptions } from 'iovalkey'

import { Unavailable } from './backends.ts'
import { bounded } from './bounded.ts'
import { causeOf, told } from './causes.ts'
import type { Secrets } from './secrets.ts'
import { readAddress, type Server } from './valkey_address.ts'

type Client = Redis | Cluster

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
  #name: string

  constructor(reference: string, port: number, seconds: number, secrets: Secrets) {
    this.#secrets = secrets
    this.#name = `valkey of secret '${reference}'`
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
      if (open && isSent && error instanceof Unavailable) this.#retire(open)
      else if (!isReply) open?.end.abort()
      if (error instanceof Unavailable && error.isCertain) throw error
      throw new Unavailable(told(this.#name, reasonOf(error as Error)), isReply || !isSent)
    }
  }

  /** All keys like the pattern. Each call of the scan is bounded in time, not all of it. */
  async keys(pattern: string): Promise<Set<string>> {
    const found = new Set<string>()
    const servers = await this.run(async (it) => ('nodes' in it ? it.nodes('master') : [it]))
    for (const server of servers) {
      let cursor = '0'
      do {
        const scan = () => server.scan(cursor, 'MATCH', pattern, 'COUNT', 1000)
        const [next, keys] = await this.run(scan)
        for (const key of keys) found.add(key)
        cursor = next
      } while (cursor !== '0')
    }
    return found
  }

  /** Close what is open. */
  close(): void {
    this.#open?.end.abort()
  }

  /** Let later calls connect anew; what was asked here before is still answered. */
  #retire(open: Open): void {
    if (this.#open === open) this.#open = null
    setTimeout(() => open.end.abort(), this.#seconds * 1000)
  }

  #openAt(address: string): Open {
    const old = this.#open
    if (old?.address === address && !old.end.signal.aborted) return old
    const { server, access, name } = readAddress(address, this.#reference, this.#port)
    this.#name = name
    if (old) this.#retire(old)
    const end = new AbortController()
    this.#open = { address, end, client: connect(server, access, end) }
    return this.#open
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
  const code = /^[A-Z]{3,}(?= )/.exec(error.message)?.[0] ?? 'ERR'
  if (error.name === 'ReplyError') return causeOf(error, code) || code
  return causeOf(error) || (error as NodeJS.ErrnoException).code || 'the connection broke'
}
