// The file .mcp.json: the MCP servers that the agent uses, and how it reaches each.

import { accessSync, constants, existsSync, readFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'

import { type Diagnostic, diagnostic, isPlainHttp, withoutPassword } from '../settings.ts'

export const FILE = '.mcp.json'
const NAME = /^[A-Za-z0-9_-]{1,32}$/
const VARIABLE = /\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g
// The fields of a server by its type, and the form of each.
const STRING = 'a string that is not empty'
const [LIST, OBJECT] = ['a list of strings', 'an object of strings']
const FIELDS: Record<string, Record<string, string>> = {
  stdio: { type: STRING, command: STRING, args: LIST, env: OBJECT },
  http: { type: STRING, url: 'an http address', headers: OBJECT },
}
const REQUIRED: Record<string, string> = { stdio: 'command', http: 'url' }
// The ids of findings, and their severity: a server that is down does not stop the agent.
export const FINDINGS = {
  'MCP-FILE': 'error', // no JSON, or not {"mcpServers": {…}}
  'MCP-SERVER': 'error', // the name or the type of a server
  'MCP-FIELD': 'error', // unknown, missing, or of another form
  'MCP-VARIABLE': 'warning', // not set
  'MCP-COMMAND': 'warning', // not found
  'MCP-PLAIN-HTTP': 'warning', // headers that others can read
  'MCP-CONNECT': 'warning', // no answer, with --connect
} as const

/** A server as the file declares it; its variables have their values, or stand in `unset`. */
export class Declaration {
  readonly name: string
  readonly line: number
  readonly command: string = ''
  readonly args: string[] = []
  readonly env: Record<string, string> = {}
  readonly url: string = ''
  readonly headers: Record<string, string> = {}
  readonly unset: string[] = []

  constructor(name: string, line: number, fields: Partial<Declaration>) {
    this.name = name
    this.line = line
    Object.assign(this, fields)
  }

  /** What the agent contacts or runs, without passwords and arguments. */
  get contact(): string {
    const [address] = withoutPassword(this.url).split('?')
    return address ? `contacts ${address}` : `runs ${this.command}`
  }

  /** Whether there is such a command. */
  get isFound(): boolean {
    if (this.url || process.platform === 'win32') return true
    const path = (this.env.PATH ?? process.env.PATH ?? '').split(delimiter)
    const isPath = this.command.includes('/')
    return (isPath ? [''] : path).some((folder) => isExecutable(join(folder, this.command)))
  }
}

type Values = Record<string, unknown>

/** Read the file; return the servers that it declares without an error, and the findings. */
export function readServers(): [Declaration[], Diagnostic[]] {
  if (!existsSync(FILE)) return [[], []]
  let [text, data]: [string, unknown] = ['', null]
  try {
    text = readFileSync(FILE, 'utf8').replace(/^\ufeff/, '')
    data = JSON.parse(text)
  } catch (error) {
    const what = error instanceof SyntaxError ? error.message : 'it cannot be read'
    const [, position] = /position (\d+)/.exec(what) ?? []
    const line = position ? text.slice(0, Number(position)).split('\n').length : 0
    return [[], [finding('MCP-FILE', `This is not valid JSON: ${what}.`, line)]]
  }
  const declared = isObject(data) ? data.mcpServers : null
  if (!isObject(data) || !isObject(declared)) {
    return [[], [finding('MCP-FILE', 'Write {"mcpServers": {"NAME": {…}}}.', 1)]]
  }
  const [servers, findings]: [Declaration[], Diagnostic[]] = [[], []]
  for (const key of Object.keys(data)) {
    const message = `Field '${key}' is unknown: allowed is mcpServers.`
    if (key !== 'mcpServers') findings.push(finding('MCP-FIELD', message, lineOf(text, [key])))
  }
  for (const [name, server] of Object.entries(declared)) {
    const found = [...checkForm(text, name, server)]
    if (found.length === 0) {
      const line = lineOf(text, ['mcpServers', name])
      const declaration = declare(name, line, server as Values)
      servers.push(declaration)
      found.push(...checkValues(text, declaration))
    }
    findings.push(...found)
  }
  return [servers, findings]
}

/** Yield what is wrong with the form of a server. */
function* checkForm(text: string, name: string, server: unknown): Generator<Diagnostic> {
  const place = ['mcpServers', name]
  if (!NAME.test(name)) {
    const message = `The server name '${name.slice(0, 80)}' must match [A-Za-z0-9_-]{1,32}.`
    yield finding('MCP-SERVER', message, lineOf(text, place))
  }
  if (!isObject(server)) {
    yield finding('MCP-SERVER', `Server ${name} must be an object.`, lineOf(text, place))
    return
  }
  const type = server.type ?? ('url' in server ? 'http' : 'stdio')
  const fields = Object.entries(FIELDS).find(([known]) => known === type)?.[1]
  if (!fields) {
    const message = `Server ${name} has another type: allowed are stdio and http.`
    yield finding('MCP-SERVER', message, lineOf(text, [...place, 'type']))
    return
  }
  for (const [key, value] of Object.entries(server)) {
    const [form, line] = [Object.hasOwn(fields, key) && fields[key], lineOf(text, [...place, key])]
    const allowed = Object.keys(fields).join(', ')
    if (!form) {
      yield finding('MCP-FIELD', `Field '${key}' is unknown: allowed are ${allowed}.`, line)
    } else if (!hasForm(value, form)) {
      yield finding('MCP-FIELD', `${key} must be ${form}.`, line)
    }
  }
  const required = REQUIRED[String(type)] ?? ''
  if (!(required in server)) {
    const message = `Server ${name} needs the field ${required}.`
    yield finding('MCP-FIELD', message, lineOf(text, place))
  }
}

function hasForm(value: unknown, form: string): boolean {
  if (form === LIST) return Array.isArray(value) && value.every((it) => typeof it === 'string')
  if (form === OBJECT) {
    return isObject(value) && Object.values(value).every((it) => typeof it === 'string')
  }
  const pattern = form === STRING ? /./ : /^(https?:\/\/|\$\{)/
  return typeof value === 'string' && pattern.test(value)
}

/** Return a server with the values of its variables. */
function declare(name: string, line: number, server: Values): Declaration {
  const unset = new Set<string>()
  const expand = (text: string) =>
    text.replace(VARIABLE, (_, variable) => {
      const value = process.env[variable]?.trim() ?? ''
      if (!value) unset.add(variable)
      return value
    })
  const expanded = JSON.parse(JSON.stringify(server), (_, value) =>
    typeof value === 'string' ? expand(value) : value,
  )
  const { type: _, ...fields } = expanded
  return new Declaration(name, line, { ...fields, unset: [...unset] })
}

/** Yield what keeps a server from being reached. */
function* checkValues(text: string, server: Declaration): Generator<Diagnostic> {
  const place = ['mcpServers', server.name]
  for (const name of server.unset) {
    const message = `${name} is not set: server ${server.name} stays down until it is.`
    yield finding('MCP-VARIABLE', message, lineOf(text, place, `\${${name}}`))
  }
  if (server.unset.length === 0 && !server.isFound) {
    const message = `The command ${server.command} of server ${server.name} was not found.`
    yield finding('MCP-COMMAND', message, lineOf(text, [...place, 'command']))
  }
  if (Object.keys(server.headers).length > 0 && isPlainHttp(server.url)) {
    const message = `The headers of server ${server.name} travel over plain http: use https.`
    yield finding('MCP-PLAIN-HTTP', message, lineOf(text, [...place, 'url']))
  }
}

function finding(id: keyof typeof FINDINGS, message: string, line: number): Diagnostic {
  return diagnostic(id, message, FINDINGS[id], FILE, line)
}

/** Return the line of a key behind the keys above it, and of the text `near` behind that. */
function lineOf(text: string, keys: string[], near = ''): number {
  let at = 0
  for (const key of keys) {
    const escaped = JSON.stringify(key).replace(/[^A-Za-z0-9_]/g, '\\$&')
    const quoted = RegExp(`${escaped}\\s*:`, 'g')
    quoted.lastIndex = at
    at = quoted.exec(text)?.index ?? at
  }
  return text.slice(0, Math.max(text.indexOf(near, at), 0)).split('\n').length
}

function isObject(value: unknown): value is Values {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return true
  } catch {
    return false
  }
}
