// The MCP servers as a capability: their tools, each under a unique name.
//
// A server that is down causes only a warning. The next turn reconnects in the background; a call
// of one of its tools reconnects first.

import type { Ajv } from '@modelcontextprotocol/client/validators/ajv'

import { Capability } from '../capability.ts'
import type { Finding } from '../findings.ts'
import { log, logging } from '../log.ts'
import { problemsOf } from '../tool_schemas.ts'
import type { NamedTool } from '../tools.ts'
import { namesOf, toTool } from './adapter.ts'
import { loadClient, Server, type Tool } from './connection.ts'
import { readServers, report } from './file.ts'
import { type RepairedTool, validName, withHash } from './schemas.ts'
import type { McpSettings } from './settings.ts'

const START_SECONDS = 10 // time limit of a start, for all servers
const MAX_TOOLS = 128 // limit of OpenAI; includes the agent's tools
const MAX_WARNINGS = 100
const RESERVED = ['add_memory', 'search_memory'] // tools of long-term memory

type OfferedTool = readonly [server: Server, tool: Tool, repaired: RepairedTool]

/** The servers of the file; does nothing if the file declares none. */
export class McpServers extends Capability<McpSettings> {
  #cachedServers: Server[] | null = null
  #tools: NamedTool[] = []
  #ajv: InstanceType<typeof Ajv> | null = null
  #isOpen = false
  #agentNames: string[] = [] // of the agent's tools
  readonly #counts = new Map<string, string>() // by server: listed and offered tools
  readonly #names = new Map<string, string>() // by server and tool; only listed tools
  readonly #warned = new Set<string>()

  get #servers(): Server[] {
    const seconds = this.settings.mcpTimeoutSeconds
    return (this.#cachedServers ??= readServers(this.settings)[0].map(
      (declared) => new Server(declared, seconds, () => this.#nameTools()),
    ))
  }

  override check(): Finding[] {
    return readServers(this.settings)[1]
  }

  /** Return a finding for each server that does not answer. */
  override async ping(): Promise<Finding[]> {
    const { isVerbose } = logging
    logging.isVerbose = true // prints the number of tools of each server
    await this.#connect(this.settings.mcpTimeoutSeconds + 1)
    logging.isVerbose = isVerbose
    const findings = this.#servers.flatMap(({ declared, problem }) => {
      if (!problem || declared.problem) return [] // `check` has already reported it
      const message = `Server ${declared.name} is down: ${problem}.`
      return [report(this.settings.mcpFile, 'MCP-CONNECT', message, declared.line)]
    })
    await this.close()
    return findings
  }

  /** Connect to all servers and list their tools; one that fails causes only a warning. */
  override open(): Promise<void> {
    return this.#connect(START_SECONDS)
  }

  async #connect(seconds: number): Promise<void> {
    if (this.#servers.length === 0) return
    const { TOOLS } = await this.load.agent()
    this.#agentNames = namesOf(TOOLS)
    const { Ajv } = await import('@modelcontextprotocol/client/validators/ajv')
    await loadClient() // slow: loaded before the servers' time limit starts
    this.#ajv = new Ajv({ strict: false, validateFormats: false, logger: false })
    const pending = new Set(this.#servers)
    const attempts = this.#servers.map(async (server) => {
      await server.connect().catch(() => {}) // the failure is already logged
      pending.delete(server)
    })
    let timer
    const expiry = new Promise((resolve) => (timer = setTimeout(resolve, seconds * 1000)))
    await Promise.race([Promise.all(attempts), expiry])
    clearTimeout(timer)
    for (const { declared } of pending) {
      log('WARNING', `MCP server ${declared.name} has not answered yet; starting without it`)
    }
    this.#isOpen = true
    this.#nameTools()
  }

  /** Close all connections and terminate all processes. */
  override async close(): Promise<void> {
    await Promise.all(this.#servers.map((server) => server.close()))
  }

  override tools(): NamedTool[] {
    return this.#tools
  }

  /** Reconnect servers that are down; the turn does not wait for them. */
  override prepare(): void {
    for (const server of this.#isOpen ? this.#servers : []) server.retry()
  }

  /** Return a line for each server: the address or command that the agent uses. */
  override describe(): string[] {
    return this.#servers.map(({ declared, problem }) => {
      const state = problem ? `down: ${problem}` : this.#counts.get(declared.name)
      return `MCP server ${declared.name}: ${declared.contact}, ${state}`
    })
  }

  /**
   * Offer the tools of all servers, in the order of the file, each under a unique name.
   *
   * The file decides which tools are offered, not the time at which a server answers. A tool keeps
   * its name when other tools come later.
   */
  #nameTools(): void {
    if (!this.#isOpen) return
    const offered = this.#select()
    this.#name(offered)
    this.#tools = offered.map(([server, tool, repaired]) => {
      const name = this.#names.get(keyOf(server, tool)) ?? ''
      const call = (args: unknown, signal: AbortSignal) =>
        server.call(tool.name, repaired.restore(args), signal)
      return toTool(name, repaired.description, repaired.schema, call)
    })
    for (const server of this.#servers) {
      const count = offered.filter(([owner]) => owner === server).length
      const line = `lists ${server.tools.length} tools, ${count} are offered`
      const { name } = server.declared
      const isNew = server.tools.length > 0 && line !== this.#counts.get(name)
      if (isNew) log('INFO', `MCP server ${name}: ${line}`)
      this.#counts.set(name, line)
    }
  }

  /** Return the tools to offer: at most MAX_TOOLS, including the agent's. */
  #select(): OfferedTool[] {
    const room = MAX_TOOLS - new Set([...this.#agentNames, ...RESERVED]).size
    const offered: OfferedTool[] = []
    for (const server of this.#servers) {
      const known = new Set<string>()
      const warn = (text: string) => this.#warn(`MCP server ${server.declared.name}: ${text}`)
      for (const tool of server.tools) {
        if (offered.length >= room) {
          const problem = `the limit of ${MAX_TOOLS} tools, including the agent's, is reached`
          warn(`${problem}; further tools are left out`)
          break
        }
        const name = validName(tool.name)
        const { repaired } = tool
        if (!/[A-Za-z0-9]/.test(tool.name)) {
          warn('a tool whose name has no ASCII letter or digit is left out')
        } else if (known.has(tool.name)) {
          warn(`two tools are named ${name}; the second is left out`)
        } else if (repaired instanceof Error) {
          warn(`tool ${name} is left out: ${repaired.message}`)
        } else {
          const problem = this.#problemOf(name, repaired)
          if (problem) warn(`tool ${name} is left out: ${problem}`)
          else offered.push([server, tool, repaired])
          known.add(tool.name)
        }
      }
    }
    return offered
  }

  /** Name new tools; prefix a taken name with the server's name. */
  #name(offered: readonly OfferedTool[]): void {
    const keys = this.#servers.flatMap((server) => server.tools.map((tool) => keyOf(server, tool)))
    const current = new Set(keys)
    for (const key of this.#names.keys()) if (!current.has(key)) this.#names.delete(key)
    const listed = this.#servers.map(
      ({ tools }) => new Set(tools.map(({ name }) => normalized(name))),
    )
    const reserved = new Set([...this.#agentNames, ...RESERVED].map(normalized))
    // Tools with valid names come first, so that they keep their names.
    const isInvalid = ([, { name }]: OfferedTool) => Number(name !== validName(name))
    for (const [server, tool] of offered.toSorted(
      (left, right) => isInvalid(left) - isInvalid(right),
    )) {
      const key = keyOf(server, tool)
      if (this.#names.has(key)) continue
      const owner = server.declared.name
      const plain = validName(tool.name)
      const assigned = [...this.#names].map(([known, name]) => [known, normalized(name)] as const)
      const isTaken =
        reserved.has(normalized(plain)) ||
        assigned.some(
          ([known, name]) => !known.startsWith(`${owner}\n`) && name === normalized(plain),
        ) ||
        listed.filter((names) => names.has(normalized(plain))).length > 1
      let name = isTaken ? validName(`${owner}_${plain}`) : plain
      const isUsed =
        reserved.has(normalized(name)) || assigned.some(([, taken]) => taken === normalized(name))
      if (isUsed) name = withHash(name, `${owner} ${tool.name}`)
      this.#names.set(key, name)
      if (name !== plain) {
        const problem = `the tool name ${plain} is taken; this tool is named ${name}`
        this.#warn(`MCP server ${owner}: ${problem}`)
      }
    }
  }

  /** Return the reason why providers reject a tool, or an empty string. */
  #problemOf(name: string, { description, schema }: RepairedTool): string {
    const { type: _, ...rest } = schema
    if (this.#ajv?.validateSchema(rest) !== true) return 'its schema is not valid'
    return problemsOf(name, description, schema)[0] ?? ''
  }

  #warn(line: string): void {
    if (this.#warned.has(line) || this.#warned.size >= MAX_WARNINGS) return
    this.#warned.add(line)
    log('WARNING', line)
  }
}

function keyOf(server: Server, tool: Tool): string {
  return `${server.declared.name}\n${tool.name}`
}

/** Return a name as Strands compares it: `a-b` and `a_b` cannot both be registered. */
function normalized(name: string): string {
  return validName(name).replaceAll('-', '_')
}
