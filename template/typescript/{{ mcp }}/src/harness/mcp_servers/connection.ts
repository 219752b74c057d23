// A server and its connection, which reconnects; calls have a time limit.

import type {
  CallToolResult,
  Client,
  StreamableHTTPClientTransport,
  Tool as Listed,
  Transport,
} from '@modelcontextprotocol/client'

import { withinTime } from '../deadline.ts'
import { describe, log } from '../log.ts'
import { isObject, type Schema } from '../tool_schemas.ts'
import { type Declaration, find } from './file.ts'
import { NotRepairableError, Repaired } from './schemas.ts'

const RETRY_MS = 5000 // turns try a server at most this often
const MAX_PAGES = 1000
const MAX_LISTED = 10_000 // tools of a server
const MAX_MESSAGES = 1000 // during a call that fails
const MAX_WORDS = 200 // characters of a server's own words
const MAX_RESPONSE_BYTES = 67_108_864
const MAX_TEXT_CHARS = 100_000 // of a result, before the limit of all tools
// A process behind a proxy or a CA of its own reaches nothing without these, in either case.
const PROXIES = ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'NO_PROXY']
const CERTIFICATES = ['SSL_CERT_FILE', 'SSL_CERT_DIR', 'REQUESTS_CA_BUNDLE', 'NODE_EXTRA_CA_CERTS']
const PASSED = [...PROXIES, ...PROXIES.map((name) => name.toLowerCase()), ...CERTIFICATES]

/** A server that cannot be used, and why. */
class ServerDown extends Error {}

/** The failure of a call; the model gets its text. */
class ToolFailed extends Error {}

/** A tool as its server lists it; only the name is known to be a string. */
export class Tool {
  readonly name: string
  readonly #declared: Schema
  #repaired: Repaired | NotRepairableError | null = null

  constructor({ name, _meta }: Listed) {
    this.name = name
    this.#declared = _meta?.declared as Schema
  }

  /** The declaration for model providers, or the reason for its absence. */
  get repaired(): Repaired | NotRepairableError {
    return (this.#repaired ??= this.#repair())
  }

  #repair(): Repaired | NotRepairableError {
    const { description, inputSchema } = this.#declared
    const isDescribed = typeof description === 'string' && description.trim()
    try {
      return new Repaired(isDescribed ? description : this.name, inputSchema) // none may be empty
    } catch (error) {
      if (error instanceof NotRepairableError) return error
      log('WARNING', `MCP: the repair of a tool failed: ${describe(error)}`)
      return new NotRepairableError('its declaration cannot be read')
    }
  }
}

/** A connection to a server. */
class Connection {
  readonly tools: Promise<Tool[]>
  isOver = false
  isReady = false
  readonly #declared: Declaration
  readonly #lost: (problem: string) => void
  readonly #changed: (tools: Tool[]) => void
  #client: Client | null = null
  #words = ''
  #received = 0 // messages
  #problem = 'the connection was lost' // why, when it is over
  #group: number | null = null

  constructor(
    declared: Declaration,
    seconds: number,
    lost: (problem: string) => void,
    changed: (tools: Tool[]) => void,
  ) {
    this.#declared = declared
    this.#lost = lost
    this.#changed = changed
    const late = () => {
      const words = this.#words && `: ${this.#words}`
      return new ServerDown(`it did not answer within ${seconds} seconds${words}`)
    }
    const connect = () => this.#connect(seconds)
    const { signal } = new AbortController()
    this.tools = withinTime(seconds, signal, connect, late).catch(async (error) => {
      this.isOver = true
      void this.close()
      throw new ServerDown(this.#reason(error))
    })
  }

  /** Call a tool; null: the server has lost the session, and did not call it. */
  async call(
    name: string,
    args: Record<string, unknown>,
    timeout: number,
    signal: AbortSignal,
  ): Promise<CallToolResult | null> {
    const received = this.#received
    try {
      const params = { name, arguments: args }
      return (await this.#client?.callTool(params, { timeout, signal })) ?? null
    } catch (error) {
      const { status } = error as { status?: number }
      // Without a status nobody answered.
      const isLost = error instanceof TypeError || status === 404
      if (!this.isOver && isLost) await this.close()
      if (status === 404) return null
      const isDown = isLost || this.isOver
      if (!isDown && this.#received - received > MAX_MESSAGES) {
        // They would go on, and take a processor.
        this.#problem = `it sent more than ${MAX_MESSAGES} messages during a call`
        void this.close()
      }
      throw isDown ? new ServerDown('the connection was lost') : error
    }
  }

  /** Close it; a process is ended, or killed. */
  async close(): Promise<void> {
    this.#end()
    await this.#client?.close().catch(() => {})
    this.#endGroup()
  }

  async #connect(seconds: number): Promise<Tool[]> {
    const { problem, command, args, env, cwd, url, headers } = this.#declared
    if (problem) throw new ServerDown(problem)
    const [mcp, { StdioClientTransport }] = await loadClient()
    const onChanged = (_: unknown, tools: Listed[] | null) => tools && this.#changed(toolsOf(tools))
    const options = { listMaxPages: MAX_PAGES, listChanged: { tools: { onChanged } } }
    const client = new mcp.Client({ name: 'agent', version: '1' }, options)
    this.#client = client
    client.onclose = () => {
      this.#end()
      this.#endGroup()
    }
    client.onerror = () => this.#received++ // no message; a call that fails says so itself
    if (url) {
      const transport = new mcp.StreamableHTTPClientTransport(new URL(url), {
        requestInit: { headers },
      })
      this.#watch(transport)
      this.#count(transport)
      loosen(transport)
      await client.connect(transport, { timeout: seconds * 1000 })
    } else {
      const passed = Object.entries(process.env).filter(([name]) => PASSED.includes(name))
      const setsid = find('setsid') // the process begins a group; macOS has no such command
      const transport = new StdioClientTransport({
        command: setsid ?? command,
        args: setsid ? [command, ...args] : args,
        env: { ...(Object.fromEntries(passed) as Record<string, string>), ...env },
        ...(cwd && { cwd }),
        stderr: 'pipe',
        maxBufferSize: MAX_RESPONSE_BYTES,
      })
      const start = transport.start.bind(transport)
      transport.start = async () => {
        await start()
        this.#group = setsid ? transport.pid : null
      }
      transport.stderr?.on('data', (chunk: Buffer) => this.#read(chunk))
      this.#count(transport)
      loosen(transport)
      await client.connect(transport, { timeout: seconds * 1000 })
    }
    if (!client.getServerCapabilities()?.tools) return []
    const listing = client.listTools(undefined, { timeout: seconds * 1000 })
    const { tools } = await listing.catch((error) => {
      const isInvalid = error.code === 'INVALID_RESULT'
      throw isInvalid ? new ServerDown('its list of tools is not valid') : error
    })
    this.isReady = true
    return toolsOf(tools)
  }

  /** Close it when a reply cannot come any more: the SDK would wait until the time limit. */
  #watch(transport: StreamableHTTPClientTransport): void {
    const open = new Set<unknown>()
    transport.onmessage = (message) => open.delete(Object(message).id)
    const send = transport.send.bind(transport)
    transport.send = (message, options) => {
      const { id } = Object(message)
      open.add(id)
      const onRequestStreamEnd = () => open.delete(id) && void this.close()
      return send(message, { ...options, onRequestStreamEnd })
    }
  }

  #count(transport: Transport): void {
    const receive = transport.onmessage
    transport.onmessage = (message, extra) => {
      this.#received++
      receive?.(message, extra)
    }
  }

  /** Keep the last line that a process writes before it answers; drop later lines. */
  #read(chunk: Buffer): void {
    const words = chunk.toString().trim().split('\n').at(-1)?.slice(0, 200)
    if (words && !this.isReady) this.#words = words
  }

  #end(): void {
    if (!this.isOver && this.isReady) this.#lost(this.#problem)
    this.isOver = true
  }

  /** Kill the child processes that a process has left behind. */
  #endGroup(): void {
    try {
      if (this.#group) process.kill(-this.#group, 'SIGKILL')
    } catch {
      // nothing was left
    }
    this.#group = null
  }

  #reason(error: unknown): string {
    const { message, name, status } = error as Error & { status?: number }
    if (error instanceof ServerDown) return message
    const words = name === 'ProtocolError' ? printable(message) : ''
    if (words) return `it answered ${status ? `HTTP ${status}` : 'with an error'}: ${words}`
    if (status) return `it answered HTTP ${status}`
    if (name === 'ZodError' || message.startsWith('Invalid')) return 'its answer is not valid'
    if (this.#declared.url) return `it cannot be reached: ${describe(error)}`
    if (this.#declared.missing) return `${this.#declared.missing} was not found`
    return `its process ended: ${this.#words || describe(error)}`
  }
}

/** A server of the file: its last connection, and the tools that it listed there. */
export class Server {
  readonly declared: Declaration
  tools: Tool[] = []
  /** Why it is down. */
  problem = ''
  readonly #seconds: number
  readonly #listed: () => void
  #connection: Connection | null = null
  #tried = -RETRY_MS
  #isClosed = false

  constructor(declared: Declaration, seconds: number, listed: () => void) {
    this.declared = declared
    this.#seconds = seconds
    this.#listed = listed
  }

  /** Return the connection; connect first if necessary. Throws ServerDown. */
  async connect(): Promise<Connection> {
    const connection = this.#isDown || !this.#connection ? this.#begin() : this.#connection
    await connection.tools
    return connection
  }

  /** Begin to connect if the server is down and was not tried a moment ago. */
  retry(): void {
    const waited = performance.now() - this.#tried
    if (this.#isDown && !this.declared.problem && waited >= RETRY_MS) this.#begin()
  }

  /** Call a tool and return its result as text. Errors carry a text for the model. */
  async call(name: string, args: unknown, signal: AbortSignal): Promise<string> {
    const who = `MCP server ${this.declared.name}`
    const late = `${who} did not answer within ${this.#seconds} seconds.`
    const work = (stop: AbortSignal) => this.#call(name, Object(args), stop)
    const expired = () => named('ETIMEDOUT', late)
    const result = await withinTime(this.#seconds, signal, work, expired).catch((error) => {
      signal.throwIfAborted()
      if (error.code === 'REQUEST_TIMEOUT') throw named('ETIMEDOUT', late)
      if (error.code === 'ETIMEDOUT') throw error
      if (error instanceof ServerDown) {
        throw named('ECONNRESET', `${who} is down: ${error.message}.`)
      }
      if (error.name === 'ProtocolError') throw new ToolFailed(`${who}: ${cut(error.message)}`)
      throw new ToolFailed(`${who} sent an invalid answer.`, { cause: error })
    })
    if (result.isError) throw new ToolFailed(textOf(result))
    return textOf(result)
  }

  /** Close the connection; a process is ended, or killed. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#connection?.close()
  }

  get #isDown(): boolean {
    return this.#connection?.isOver ?? true
  }

  async #call(
    name: string,
    args: Record<string, unknown>,
    signal: AbortSignal,
  ): Promise<CallToolResult> {
    for (let attempt = 0; attempt < 2; attempt++) {
      const connection = await this.connect()
      // The client's own timer, which would count the time of a blocked event loop, is too late.
      const result = await connection.call(name, args, this.#seconds * 2000, signal)
      if (result) return result
    }
    throw new ServerDown('it does not keep its session')
  }

  #begin(): Connection {
    this.#tried = performance.now()
    const lost = (problem: string) => this.#note(problem)
    const changed = (tools: Tool[]) => {
      this.tools = tools
      this.#listed()
    }
    const connection = new Connection(this.declared, this.#seconds, lost, changed)
    this.#connection = connection
    connection.tools.then(
      (tools) => {
        this.problem = ''
        log('INFO', `MCP server ${this.declared.name}: connected`)
        changed(tools)
      },
      (error) => this.#note(error.message),
    )
    return connection
  }

  /** Warn once, until it was connected again. */
  #note(problem: string): void {
    if (this.#isClosed) return
    if (!this.problem) {
      const again = this.declared.problem ? 'it stays down' : 'it is tried again at the next turn'
      log('WARNING', `MCP server ${this.declared.name}: ${problem}; ${again}`)
    }
    this.problem ||= problem
  }
}

function toolsOf(listed: Listed[]): Tool[] {
  return listed.slice(0, MAX_LISTED).map((tool) => new Tool(tool))
}

/**
 * Let the SDK accept a list of tools, whatever it declares of each.
 *
 * The SDK refuses the whole list because of one tool. It also refuses results without the
 * structured content of an output schema, although their text is an answer.
 */
function loosen(transport: Transport): void {
  const receive = transport.onmessage
  transport.onmessage = (message, extra) => {
    receive?.(message, extra)
    const result: unknown = Object(message).result
    if (!isObject(result) || !Array.isArray(result.tools)) return
    if (result.content) return // of a call
    const { nextCursor, tools } = result
    for (const key of Object.keys(result)) delete result[key]
    result.tools = tools.map((tool: unknown) => {
      const declared = isObject(tool) ? tool : {}
      const name = typeof declared.name === 'string' ? declared.name : ''
      return { name, inputSchema: { type: 'object' }, _meta: { declared } }
    })
    if (typeof nextCursor === 'string') result.nextCursor = nextCursor
  }
}

/** Return a server's own words as one line of printable characters. */
function printable(text: string): string {
  const words = [...text.trim().replace(/\s+/g, ' ')].slice(0, MAX_WORDS).join('')
  return words.replace(/(?! )[\p{C}\p{Z}]/gu, (character) => {
    return `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`
  })
}

/** Return the client's modules, which a process without a server does not need. */
export async function loadClient() {
  const client = import('@modelcontextprotocol/client')
  return Promise.all([client, import('@modelcontextprotocol/client/stdio')])
}

/** Return the parts of a result that a model can read. */
function textOf({ content, structuredContent }: CallToolResult): string {
  const texts = content.map((block) => {
    if (block.type === 'resource_link') {
      const { title, name, uri, description } = block
      return [title || name, uri, description].filter(Boolean).join(' ')
    }
    const { text } = Object(block.type === 'resource' ? block.resource : block)
    return typeof text === 'string' ? text : `[${block.type}: left out, it is not text]`
  })
  if (texts.length === 0 && structuredContent) texts.push(JSON.stringify(structuredContent))
  return cut(texts.join('\n')) || '[empty]'
}

function cut(text: string): string {
  const note = `\n[cut: ${text.length} characters, ${MAX_TEXT_CHARS} are allowed]`
  const isLong = text.length > MAX_TEXT_CHARS
  return (isLong ? text.slice(0, MAX_TEXT_CHARS) + note : text).toWellFormed()
}

function named(code: string, message: string): Error {
  return Object.assign(new ToolFailed(message), { code })
}
