// The file MCP_FILE, .mcp.json: the MCP servers that the agent uses, and how it reaches each.

import { accessSync, constants, existsSync, readFileSync, statSync } from 'node:fs'
import { basename, delimiter, join, resolve } from 'node:path'

import { diagnostic, type Finding } from '../findings.ts'
import { isPlainHttp, withoutPassword } from '../settings.ts'
import { MCP_SETTINGS, type McpSettings } from './settings.ts'

const NAME = '[A-Za-z0-9_][A-Za-z0-9_ ./@-]{0,63}'
const VARIABLE = /^\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}$/
// The fields of each type of server, and their formats.
const STRING = 'a string that is not empty'
const LIST = 'a list of strings'
const OBJECT = 'an object of strings'
const FIELDS: Record<string, Record<string, string>> = {
  stdio: { type: STRING, command: STRING, args: LIST, env: OBJECT, cwd: STRING },
  http: { type: STRING, url: 'an http address', headers: OBJECT },
}
const REQUIRED: Record<string, string> = { stdio: 'command', http: 'url' }
// The ids of findings, and their severity: a server that is down does not stop the agent.
const FINDINGS = {
  'MCP-FILE': 'error', // invalid JSON, or no object "mcpServers"
  'MCP-SERVER': 'warning', // the name or the type of a server
  'MCP-FIELD': 'warning', // missing or invalid
  'MCP-IGNORED': 'warning', // a field for other agents
  'MCP-VARIABLE': 'warning', // not set, or not a variable
  'MCP-COMMAND': 'warning', // not found
  'MCP-IMAGE': 'warning', // not found in the container
  'MCP-PLAIN-HTTP': 'warning', // headers without encryption
  'MCP-CONNECT': 'warning', // no answer, with --connect
} as const
type Id = keyof typeof FINDINGS
type FindingRow = [id: Id, message: string, line: number]

/** A server as the file declares it, with the values of its variables. */
export class Declaration {
  readonly name: string
  readonly line: number
  /** The reason why it stays down. */
  readonly problem: string = ''
  readonly command: string = ''
  readonly args: string[] = []
  readonly env: Record<string, string> = {}
  readonly cwd: string | undefined = undefined
  readonly url: string = ''
  readonly headers: Record<string, string> = {}

  constructor(name: string, line: number, fields: Partial<Declaration>) {
    this.name = name
    this.line = line
    Object.assign(this, fields)
  }

  /** The contacted address or the command, without passwords and arguments. */
  get contact(): string {
    const [address] = withoutPassword(this.url).split('?')
    return address ? `contacts ${address}` : `runs ${this.command || 'nothing'}`
  }

  /** The folder or the command that was not found. */
  get missing(): string {
    if (this.cwd && !statSync(this.cwd, { throwIfNoEntry: false })?.isDirectory()) {
      return `the folder ${this.cwd}`
    }
    if (this.url || process.platform === 'win32') return ''
    return find(this.command, this.env.PATH, this.cwd) ? '' : `the command ${this.command}`
  }
}

type Values = Record<string, unknown>

/** Read the file; return the servers that it declares, and the findings. */
export function readServers({ mcpFile: file }: McpSettings): [Declaration[], Finding[]] {
  if (!existsSync(file) && file === MCP_SETTINGS.mcpFile.value) return [[], []]
  let [text, data]: [string, unknown] = ['', null]
  try {
    text = readFileSync(file, 'utf8').replace(/^\ufeff/, '')
    data = JSON.parse(text)
  } catch (error) {
    const syntax = error instanceof SyntaxError ? error.message : ''
    const [, position] = /position (\d+)/.exec(syntax) ?? []
    const line = position ? text.slice(0, Number(position)).split('\n').length : 0
    const unreadable = 'There is no such file, or it cannot be read.'
    const problem = syntax ? `The file is not valid JSON: ${syntax}.` : unreadable
    return [[], [report(file, 'MCP-FILE', problem, line)]]
  }
  const declared = isObject(data) ? data.mcpServers : null
  if (!isObject(data) || !isObject(declared)) {
    return [[], [report(file, 'MCP-FILE', 'Write {"mcpServers": {"NAME": {…}}}.', 1)]]
  }
  const [servers, findings]: [Declaration[], FindingRow[]] = [[], []]
  for (const key of Object.keys(data)) {
    const message = `Field '${key}' is ignored: only mcpServers is supported.`
    if (key !== 'mcpServers') findings.push(['MCP-IGNORED', message, lineOf(text, [key])])
  }
  for (const [name, server] of Object.entries(declared)) {
    if (isObject(server) && server.disabled === true) continue
    const line = lineOf(text, ['mcpServers', name])
    const problems = [...check(name, server)]
    if (problems[0]) {
      const label = RegExp(`^${NAME}$`).test(name) ? name : JSON.stringify(name.slice(0, 64))
      servers.push(new Declaration(label, line, { problem: problems[0][2] }))
      for (const [id, key, problem] of problems) {
        const message = `Server ${label} stays down: ${problem}.`
        findings.push([id, message, lineOf(text, ['mcpServers', name, ...key])])
      }
    } else {
      const [declaration, unknown] = declare(name, line, server as Values)
      servers.push(declaration)
      findings.push(...checkValues(text, declaration, server as Values, unknown))
    }
  }
  return [servers, findings.map((finding) => report(file, ...finding))]
}

/** Return a finding about the file. */
export function report(file: string, id: Id, message: string, line: number): Finding {
  return diagnostic(id, message, FINDINGS[id], file, line)
}

/** Yield findings about an unusable server: the id, the key, and the reason. */
function* check(name: string, server: unknown): Generator<[Id, string[], string]> {
  if (!RegExp(`^${NAME}$`).test(name)) yield ['MCP-SERVER', [], `its name must match ${NAME}`]
  if (!isObject(server)) {
    yield ['MCP-SERVER', [], 'it must be an object']
    return
  }
  const type = typeOf(server)
  const fields = Object.entries(FIELDS).find(([known]) => known === type)?.[1]
  if (!fields) {
    yield ['MCP-SERVER', ['type'], 'its type must be stdio or http']
    return
  }
  for (const [key, form] of Object.entries(fields)) {
    const isWrong = Object.hasOwn(server, key) && !hasForm(server[key], form)
    if (isWrong) yield ['MCP-FIELD', [key], `${key} must be ${form}`]
  }
  const required = REQUIRED[type] ?? ''
  if (!Object.hasOwn(server, required)) {
    yield ['MCP-FIELD', [], `it needs the field ${required}`]
  }
}

/** Return the type of a server; other agents write streamable-http or streamableHttp. */
function typeOf(server: Values): string {
  const type = String(server.type ?? ('url' in server ? 'http' : 'stdio'))
  return /^streamable[-_]?http$/i.test(type) ? 'http' : type
}

function hasForm(value: unknown, form: string): boolean {
  if (form === LIST) return Array.isArray(value) && value.every((it) => typeof it === 'string')
  if (form === OBJECT) {
    return isObject(value) && Object.values(value).every((it) => typeof it === 'string')
  }
  const pattern = form === STRING ? /./ : /^(https?:\/\/|\$\{)/
  return typeof value === 'string' && pattern.test(value)
}

/** Return a server with the values of its variables, and the reasons for missing values. */
function declare(name: string, line: number, server: Values): [Declaration, Map<string, string>] {
  const unknown = new Map<string, string>()
  const expand = (reference: string) => {
    const [, variable, fallback] = VARIABLE.exec(reference) ?? []
    const isKnown = variable && Object.hasOwn(process.env, variable)
    const value = (isKnown && process.env[variable]?.trim()) || fallback
    if (!variable) unknown.set(reference, `${reference} is not an environment variable`)
    else if (value === undefined) unknown.set(reference, `${variable} is not set`)
    return value ?? ''
  }
  const { type: _, ...known } = FIELDS[typeOf(server)] ?? {}
  const values = Object.fromEntries(
    Object.entries(server).filter(([key]) => Object.hasOwn(known, key)),
  )
  const fields = JSON.parse(JSON.stringify(values), (_, value) =>
    typeof value === 'string' ? value.replace(/\$\{[^}]*\}?/g, expand) : value,
  )
  const [problem = ''] = unknown.values()
  return [new Declaration(name, line, { ...fields, problem }), unknown]
}

/** Yield findings about an unreachable server and ignored fields. */
function* checkValues(
  text: string,
  declared: Declaration,
  server: Values,
  unknown: Map<string, string>,
): Generator<FindingRow> {
  const { name, command, headers, missing, problem, url } = declared
  const place = ['mcpServers', name]
  const known = Object.keys(FIELDS[typeOf(server)] ?? {})
  for (const key of Object.keys(server)) {
    if (key === 'disabled' || known.includes(key)) continue
    const message = `Field '${key}' is ignored: supported fields are ${known.join(', ')}.`
    yield ['MCP-IGNORED', message, lineOf(text, [...place, key])]
  }
  for (const [variable, reason] of unknown) {
    yield ['MCP-VARIABLE', `Server ${name} stays down: ${reason}.`, lineOf(text, place, variable)]
  }
  if (!problem && missing) {
    const message = `${missing.replace('the', 'The')} of server ${name} was not found.`
    yield ['MCP-COMMAND', message, lineOf(text, [...place, 'command'])]
  }
  if (['npx', 'uvx'].includes(basename(command)) && existsSync('Dockerfile')) {
    const message = `The image cannot run ${command} for server ${name}: see docs/mcp.md.`
    yield ['MCP-IMAGE', message, lineOf(text, [...place, 'command'])]
  }
  if (Object.keys(headers).length > 0 && isPlainHttp(url)) {
    const message = `The headers of server ${name} travel over plain http: use https.`
    yield ['MCP-PLAIN-HTTP', message, lineOf(text, [...place, 'url'])]
  }
}

/** Find `keys` in order; return the line of the last key, or of the text `near` after it. */
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

/** Return the path of a command, or undefined. */
export function find(command: string, path = process.env.PATH ?? '', cwd = ''): string | undefined {
  if (command.includes('/')) return [resolve(cwd, command)].find(isExecutable)
  return path
    .split(delimiter)
    .map((folder) => join(folder, command))
    .find(isExecutable)
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return true
  } catch {
    return false
  }
}
