// The MCP servers of an agent: their tools, each under a unique name.
//
// A server that is down causes only a warning. It is tried again by the next turn, which does not
// wait for it, and by each call of one of its tools.

import type { Ajv } from '@modelcontextprotocol/client/validators/ajv'

import { TOOLS } from '../agent.ts'
import { Capability } from '../capability.ts'
import type { Finding } from '../findings.ts'
import { log } from '../log.ts'
import type { NamedTool } from '../turn.ts'
import { namesOf, toTool } from './adapter.ts'
import { loadClient, Server } from './connection.ts'
import { readServers, report } from './file.ts'
import type { McpSettings } from './settings.ts'

const START_SECONDS = 10 // how long a start waits for all servers
const MAX_TOOLS = 100
const MAX_WARNINGS = 100
const MAX_DECLARATION_CHARS = 20_000 // of a tool: its description and its schema
const RESERVED = ['add_memory', 'search_memory'] // tools of long-term memory

/** The servers of the file; does nothing if the file declares none. */
export class McpServers extends Capability<McpSettings> {
  #made: Server[] | null = null
  #tools: NamedTool[] = []
  #ajv: InstanceType<typeof Ajv> | null = null
  #isOpen = false
  readonly #names = new Map<string, string>() // by server and tool; a name never changes
  readonly #warned = new Set<string>()

  get #servers(): Server[] {
    const seconds = this.settings.mcpTimeoutSeconds
    return (this.#made ??= readServers(this.settings)[0].map(
      (declared) => new Server(declared, seconds, () => this.#nameTools()),
    ))
  }

  override check(): Finding[] {
    return readServers(this.settings)[1]
  }

  /** Return a finding for each server that does not answer. */
  override async ping(): Promise<Finding[]> {
    await this.open(this.settings.mcpTimeoutSeconds + 1)
    const findings = this.#servers.flatMap(({ declared, problem }) => {
      if (!problem || declared.problem) return [] // `check` has already reported it
      const message = `Server ${declared.name} is down: ${problem}.`
      return [report(this.settings.mcpFile, 'MCP-CONNECT', message, declared.line)]
    })
    await this.close()
    return findings
  }

  /** Connect to all servers and list their tools; one that fails causes only a warning. */
  override async open(seconds = START_SECONDS): Promise<void> {
    if (this.#servers.length === 0) return
    const { Ajv } = await import('@modelcontextprotocol/client/validators/ajv')
    await loadClient() // slow: loaded before the servers' time limit starts
    this.#ajv = new Ajv({ strict: false, validateFormats: false, logger: false })
    const waiting = new Set(this.#servers)
    const tries = this.#servers.map(async (server) => {
      await server.connect().catch(() => {}) // the failure is already logged
      waiting.delete(server)
    })
    let timer
    const expiry = new Promise((resolve) => (timer = setTimeout(resolve, seconds * 1000)))
    await Promise.race([Promise.all(tries), expiry])
    clearTimeout(timer)
    for (const { declared } of waiting) {
      log('WARNING', `MCP server ${declared.name} has not answered yet; starting without it`)
    }
    this.#isOpen = true
    this.#nameTools()
  }

  /** Close all connections, and end all processes. */
  override async close(): Promise<void> {
    await Promise.all(this.#servers.map((server) => server.close()))
  }

  override tools(): NamedTool[] {
    return this.#tools
  }

  /** Begin to connect to servers that are down; the turn does not wait for them. */
  override prepare(): void {
    for (const server of this.#isOpen ? this.#servers : []) server.retry()
  }

  /** Return what the agent contacts or runs for each server. */
  override describe(): string[] {
    return this.#servers.map(({ declared, problem, tools }) => {
      const state = problem ? `down: ${problem}` : `${tools.length} tools`
      return `MCP server ${declared.name}: ${declared.contact}, ${state}`
    })
  }

  /**
   * Name the tools of all servers: a taken name is prefixed with the server's name.
   *
   * A tool keeps its name when other tools come later.
   */
  #nameTools(): void {
    if (!this.#isOpen) return
    const listed = this.#servers.flatMap((server) =>
      server.tools.map((tool) => [server, tool] as const),
    )
    const keyOf = (server: Server, tool: string) => `${server.declared.name}\n${tool}`
    const isNew = ([server, { name }]: (typeof listed)[0]) => !this.#names.has(keyOf(server, name))
    listed.sort((one, other) => Number(isNew(one)) - Number(isNew(other)))
    const own = new Set([...namesOf(TOOLS), ...RESERVED])
    const used = new Set(own)
    const offered = this.#servers.map(
      ({ tools }) => new Set(tools.map(({ name }) => validName(name))),
    )
    const named = []
    for (const [server, { name: original, description: text, inputSchema }] of listed) {
      const [who, plain, key] = [server.declared.name, validName(original), keyOf(server, original)]
      const given = [...this.#names].filter(([known]) => !known.startsWith(`${who}\n`))
      const isTaken =
        own.has(plain) ||
        given.some(([, name]) => name === plain) ||
        offered.filter((names) => names.has(plain)).length > 1
      const name = this.#names.get(key) ?? (isTaken ? validName(`${who}_${plain}`) : plain)
      const description = text || original // no provider takes an empty one
      if (/^_*$/.test(plain)) {
        this.#warn(`MCP server ${who}: a tool whose name has no ASCII letter or digit is left out`)
        continue
      }
      if (name !== plain) {
        const what = `the tool name ${plain} is taken; this tool is named ${name}`
        this.#warn(`MCP server ${who}: ${what}`)
      }
      if (named.length === MAX_TOOLS) {
        const what = `the limit of ${MAX_TOOLS} tools for all servers is reached`
        this.#warn(`MCP server ${who}: ${what}; further tools are left out`)
        break
      }
      if (used.has(name)) {
        this.#warn(`MCP server ${who}: two tools are ${name}; one is left out`)
      } else if (sizeOf(inputSchema) + description.length > MAX_DECLARATION_CHARS) {
        const what = 'its description and schema are too long'
        this.#warn(`MCP server ${who}: tool ${name} is left out: ${what}`)
      } else if (!this.#isValid(inputSchema)) {
        this.#warn(`MCP server ${who}: tool ${name} is left out: its schema is not valid`)
      } else {
        used.add(name)
        this.#names.set(key, name)
        const call = (args: unknown, signal: AbortSignal) => server.call(original, args, signal)
        named.push(toTool(name, description, inputSchema, call))
      }
    }
    this.#tools = named
  }

  /** Whether providers take a schema: one that they refuse would fail every turn. */
  #isValid(schema: Record<string, unknown>): boolean {
    const { type, ...rest } = schema
    delete rest.$schema // the validator knows only one version of JSON Schema
    return type === 'object' && this.#ajv?.validateSchema(rest) === true
  }

  #warn(line: string): void {
    if (this.#warned.has(line) || this.#warned.size >= MAX_WARNINGS) return
    this.#warned.add(line)
    log('WARNING', line)
  }
}

/** Return a name that every provider takes. */
function validName(name: string): string {
  return name.replace(/[^A-Za-z0-9_]/g, '_').slice(0, 64)
}

function sizeOf(schema: object): number {
  return JSON.stringify(schema).length
}
