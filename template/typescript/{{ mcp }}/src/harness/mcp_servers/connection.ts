// A server and its connection, which reconnects; calls have a time limit.

import type {
  CallToolResult,
  Client,
  StreamableHTTPClientTransport,
  Tool as ListedTool,
  Transport,
} from '@modelcontextprotocol/client'

import { withinTime } from '../deadline.ts'
import { describe, log } from '../log.ts'
import { isObject, type Schema } from '../tool_schemas.ts'
import { type Declaration, find } from './file.ts'
import { NotRepairableError, RepairedTool } from './schemas.ts'

const RETRY_MS = 5000 // turns try a server at most this often
const MAX_PAGES = 1000
const MAX_LISTED = 10_000 // tools of a server
const MAX_MESSAGES = 1000 // of a server during a call, before the call fails
const MAX_ERROR_CHARS = 200 // of a server's error message
const MAX_RESPONSE_BYTES = 67_108_864
const MAX_RECEIVED_CHARS = 100_000 // of a result, before MAX_RESULT_CHARS cuts it
// `withinTime` limits requests: a timer of the SDK counts the time of a blocked event loop.
const UNLIMITED = { timeout: 2 ** 31 - 1 } // the longest timer of Node
// Behind a proxy or with a private CA, a server's process needs these variables.
const PROXIES = ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'NO_PROXY']
const CERTIFICATES = ['SSL_CERT_FILE', 'SSL_CERT_DIR', 'REQUESTS_CA_BUNDLE', 'NODE_EXTRA_CA_CERTS']
const PASSED_VARIABLES = [...PROXIES, ...PROXIES.map((name) => name.toLowerCase()), ...CERTIFICATES]

const NO_OUTCOME = 'the connection was lost, so the outcome of the call is unknown'

/** The server cannot be used; the message is the reason. */
class ServerDown extends Error {}

/** A tool failed; the model gets the message. */
class ToolFailed extends Error {}

/** A tool as its server lists it; only the name is known to be a string. */
export class Tool {
  readonly name: string
  readonly #declared: Schema
  #repaired: RepairedTool | NotRepairableError | null = null

  constructor({ name, _meta }: ListedTool) {
    this.name = name
    this.#declared = _meta?.declared as Schema
  }

  /** The declaration for model providers, or the reason for its absence. */
  get repaired(): RepairedTool | NotRepairableError {
    return (this.#repaired ??= this.#repair())
  }

  #repair(): RepairedTool | NotRepairableError {
    const { description, inputSchema } = this.#declared
    const hasDescription = typeof description === 'string' && description.trim()
    try {
      // No provider accepts an empty description.
      return new RepairedTool(hasDescription ? description : this.name, inputSchema)
    } catch (error) {
      if (error instanceof NotRepairableError) return error
      log('WARNING', `MCP: the repair of a tool failed: ${describe(error)}`)
      return new NotRepairableError('its declaration cannot be read')
    }
  }
}

/** A connection to a server; it reports its end and changes of the tools. */
class Connection {
  readonly tools: Promise<Tool[]>
  isOver = false
  isReady = false
  readonly #declared: Declaration
  readonly #onLost: (problem: string) => void
  readonly #onTools: (tools: Tool[]) => void
  #client: Client | null = null
  #lastLine = ''
  #received = 0 // number of messages
  #calls = 0 // number of running calls
  #hasLostSession = false
  #problem = 'the connection was lost' // the reason for the end
  #group: number | null = null

  constructor(
    declared: Declaration,
    seconds: number,
    onLost: (problem: string) => void,
    onTools: (tools: Tool[]) => void,
  ) {
    this.#declared = declared
    this.#onLost = onLost
    this.#onTools = onTools
    const expired = () => {
      const lastLine = this.#lastLine && `: ${this.#lastLine}`
      return new ServerDown(`it did not answer within ${seconds} seconds${lastLine}`)
    }
    const connect = () => this.#connect()
    const { signal } = new AbortController()
    this.tools = withinTime(seconds, signal, connect, expired).catch(async (error) => {
      this.isOver = true
      void this.close()
      throw new ServerDown(this.#reason(error))
    })
  }

  /** Whether further calls need another connection. */
  get isDown(): boolean {
    return this.isOver || this.#hasLostSession
  }

  /** Call a tool; return null if the server lost the session and did not run the call. */
  async call(
    name: string,
    args: Record<string, unknown>,
    signal: AbortSignal,
  ): Promise<CallToolResult | null> {
    const received = this.#received
    this.#calls++
    try {
      const params = { name, arguments: args }
      return (await this.#client?.callTool(params, { ...UNLIMITED, signal })) ?? null
    } catch (error) {
      const { status } = error as { status?: number }
      if (status === 404) {
        this.#hasLostSession = true
        return null
      }
      const isLost = error instanceof TypeError // the server did not answer
      if (!this.isOver && isLost) await this.close()
      const isDown = isLost || this.isOver
      if (!isDown && this.#received - received > MAX_MESSAGES) {
        // Close: the server would keep a CPU busy.
        this.#problem = `it sent more than ${MAX_MESSAGES} messages during a call`
        void this.close()
      }
      throw isDown ? new ServerDown(NO_OUTCOME) : error
    } finally {
      this.#calls--
      // Running calls keep their connection.
      if (this.#hasLostSession && this.#calls === 0) void this.close()
    }
  }

  /** Close the connection; terminate the process, or kill it. */
  async close(): Promise<void> {
    this.#end()
    await this.#client?.close().catch(() => {})
    this.#endGroup()
  }

  async #connect(): Promise<Tool[]> {
    const { problem, command, args, env, cwd, url, headers } = this.#declared
    if (problem) throw new ServerDown(problem)
    const [mcp, { StdioClientTransport }] = await loadClient()
    const onChanged = (_: unknown, tools: ListedTool[] | null) =>
      tools && this.#onTools(toolsOf(tools))
    const options = { listMaxPages: MAX_PAGES, listChanged: { tools: { onChanged } } }
    const client = new mcp.Client({ name: 'agent', version: '1' }, options)
    this.#client = client
    client.onclose = () => {
      this.#end()
      this.#endGroup()
    }
    // Invalid messages count too; a failed call reports itself.
    client.onerror = () => this.#received++
    if (url) {
      const transport = new mcp.StreamableHTTPClientTransport(new URL(url), {
        requestInit: { headers },
      })
      this.#watch(transport)
      this.#count(transport)
      loosen(transport)
      await client.connect(transport, UNLIMITED)
    } else {
      const variables = Object.entries(process.env).filter(([name]) =>
        PASSED_VARIABLES.includes(name),
      )
      const setsid = find('setsid') // starts a process group; macOS has no setsid
      const transport = new StdioClientTransport({
        command: setsid ?? command,
        args: setsid ? [command, ...args] : args,
        env: { ...(Object.fromEntries(variables) as Record<string, string>), ...env },
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
      await client.connect(transport, UNLIMITED)
    }
    if (!client.getServerCapabilities()?.tools) return []
    const listing = client.listTools(undefined, UNLIMITED)
    const { tools } = await listing.catch((error) => {
      const isInvalid = error.code === 'INVALID_RESULT'
      throw isInvalid ? new ServerDown('its list of tools is not valid') : error
    })
    this.isReady = true
    return toolsOf(tools)
  }

  /** Close when a stream ends before its reply: the SDK would wait for the time limit. */
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
    const line = chunk.toString().trim().split('\n').at(-1)?.slice(0, 200)
    if (line && !this.isReady) this.#lastLine = line
  }

  #end(): void {
    if (!this.isDown && this.isReady) this.#onLost(this.#problem)
    this.isOver = true
  }

  /** Kill the remaining child processes of a server. */
  #endGroup(): void {
    try {
      if (this.#group) process.kill(-this.#group, 'SIGKILL')
    } catch {
      // no process remains
    }
    this.#group = null
  }

  #reason(error: unknown): string {
    const { message, name, status } = error as Error & { status?: number }
    if (error instanceof ServerDown) return message
    const text = name === 'ProtocolError' ? printable(message) : ''
    if (text) return `it answered ${status ? `HTTP ${status}` : 'with an error'}: ${text}`
    if (status) return `it answered HTTP ${status}`
    if (name === 'ZodError' || message.startsWith('Invalid')) return 'its answer is not valid'
    if (this.#declared.url) return `it cannot be reached: ${describe(error)}`
    if (this.#declared.missing) return `${this.#declared.missing} was not found`
    return `its process ended: ${this.#lastLine || describe(error)}`
  }
}

/** A server of the file: its last connection, and the tools of this connection. */
export class Server {
  readonly declared: Declaration
  tools: Tool[] = []
  /** The reason why it is down. */
  problem = ''
  readonly #seconds: number
  readonly #onChange: () => void
  #connection: Connection | null = null
  #lastAttempt = -RETRY_MS
  #isClosed = false

  constructor(declared: Declaration, seconds: number, onChange: () => void) {
    this.declared = declared
    this.#seconds = seconds
    this.#onChange = onChange
  }

  /** Return the connection, opened if needed. Throws ServerDown. */
  async connect(): Promise<Connection> {
    const connection =
      this.#isDown || !this.#connection ? this.#startConnection() : this.#connection
    await connection.tools
    return connection
  }

  /** Reconnect a server that is down, at most every RETRY_MS. */
  retry(): void {
    const elapsed = performance.now() - this.#lastAttempt
    if (this.#isDown && !this.declared.problem && elapsed >= RETRY_MS) this.#startConnection()
  }

  /** Call a tool and return its result as text; error messages are for the model. */
  async call(name: string, args: unknown, signal: AbortSignal): Promise<string> {
    const server = `MCP server ${this.declared.name}`
    const timeout = `${server} did not answer within ${this.#seconds} seconds.`
    const work = (stop: AbortSignal) => this.#call(name, Object(args), stop)
    const expired = () => withCode('ETIMEDOUT', timeout)
    const result = await withinTime(this.#seconds, signal, work, expired).catch((error) => {
      signal.throwIfAborted()
      if (error.code === 'ETIMEDOUT') throw error
      if (error instanceof ServerDown) {
        throw withCode('ECONNRESET', `${server} is down: ${error.message}.`)
      }
      if (error.name === 'ProtocolError') throw new ToolFailed(`${server}: ${cut(error.message)}`)
      throw new ToolFailed(`${server} sent an invalid answer.`, { cause: error })
    })
    if (result.isError) throw new ToolFailed(textOf(result))
    return textOf(result)
  }

  /** Close the connection; terminate the process, or kill it. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#connection?.close()
  }

  get #isDown(): boolean {
    return this.#connection?.isDown ?? true
  }

  async #call(
    name: string,
    args: Record<string, unknown>,
    signal: AbortSignal,
  ): Promise<CallToolResult> {
    for (let attempt = 0; attempt < 2; attempt++) {
      const connection = await this.connect()
      const result = await connection.call(name, args, signal)
      if (result) return result
    }
    throw new ServerDown('it does not keep its session')
  }

  #startConnection(): Connection {
    this.#lastAttempt = performance.now()
    const onLost = (problem: string) => this.#report(problem)
    const onTools = (tools: Tool[]) => {
      this.tools = tools
      this.#onChange()
    }
    const connection = new Connection(this.declared, this.#seconds, onLost, onTools)
    this.#connection = connection
    connection.tools.then(
      (tools) => {
        this.problem = ''
        log('INFO', `MCP server ${this.declared.name}: connected`)
        onTools(tools)
      },
      (error) => this.#report(error.message),
    )
    return connection
  }

  /** Store the problem; warn once until the server is connected again. */
  #report(problem: string): void {
    if (this.#isClosed) return
    if (!this.problem) {
      const nextStep = this.declared.problem ? 'it stays down' : 'the next turn reconnects'
      log('WARNING', `MCP server ${this.declared.name}: ${problem}; ${nextStep}`)
    }
    this.problem ||= problem
  }
}

function toolsOf(listed: ListedTool[]): Tool[] {
  return listed.slice(0, MAX_LISTED).map((tool) => new Tool(tool))
}

/**
 * Make the SDK accept any list of tools.
 *
 * The SDK rejects the whole list because of one invalid tool. It also rejects a result without the
 * structured content of its output schema, although the text is enough.
 */
function loosen(transport: Transport): void {
  const receive = transport.onmessage
  transport.onmessage = (message, extra) => {
    receive?.(message, extra)
    const result: unknown = Object(message).result
    if (!isObject(result) || !Array.isArray(result.tools)) return
    if (result.content) return // result of a call
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

/** Return a server's error message as one line of printable characters. */
function printable(text: string): string {
  const line = [...text.trim().replace(/\s+/g, ' ')].slice(0, MAX_ERROR_CHARS).join('')
  return line.replace(/(?! )[\p{C}\p{Z}]/gu, (character) => {
    return `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`
  })
}

/** Import the SDK's client, which only a process with servers needs. */
export async function loadClient() {
  const client = import('@modelcontextprotocol/client')
  return Promise.all([client, import('@modelcontextprotocol/client/stdio')])
}

/** Return a result as text for a model. */
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
  const note = `\n[cut: ${text.length} characters, ${MAX_RECEIVED_CHARS} are allowed]`
  const isLong = text.length > MAX_RECEIVED_CHARS
  return (isLong ? text.slice(0, MAX_RECEIVED_CHARS) + note : text).toWellFormed()
}

function withCode(code: string, message: string): Error {
  return Object.assign(new ToolFailed(message), { code })
}
