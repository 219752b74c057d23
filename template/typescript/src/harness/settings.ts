// The core settings: environment variables, defaults and allowed values.

import { existsSync, readFileSync } from 'node:fs'
import { inspect, parseEnv } from 'node:util'

import { diagnostic, type Finding } from './findings.ts'

/** A setting: its default, its parser, and a description of its allowed values. */
export interface Setting<T> {
  readonly value: T
  readonly allowed: string
  /** Parse a string; return undefined if the string is invalid. */
  readonly read: (text: string) => T | undefined
  readonly isRequired: boolean
  readonly isSecret: boolean
}

/** If a `required` setting has no value, `check` reports it, and other commands do not start. */
interface Options {
  readonly required?: boolean
}

/** Declared settings by property name; the variable MAX_TURNS sets `maxTurns`. */
export type Declarations = Readonly<Record<string, Setting<unknown>>>
export type SettingsOf<K> = {
  readonly [N in keyof K]: K[N] extends Setting<infer T> ? T : never
}

const BOOLEANS = new Map([
  ['1', true],
  ['true', true],
  ['0', false],
  ['false', false],
])

/** Declare a setting that is a whole number. */
export function integer(
  value: number,
  low: number,
  high: number,
  options: Options = {},
): Setting<number> {
  const read = (text: string) => {
    const number = /^-?[0-9]{1,15}$/.test(text) ? Number(text) : NaN
    return low <= number && number <= high ? number : undefined
  }
  return setting(value, `a whole number from ${low} to ${high}`, read, options)
}

/** Declare a setting that is on or off. */
export function boolean(value = false, options: Options = {}): Setting<boolean> {
  const read = (text: string) => BOOLEANS.get(text.toLowerCase())
  return setting(value, 'true or false', read, options)
}

/** Declare a string setting whose values match `form`; `allowed` describes them. */
export function string<T extends string | null = string>(
  form = '.*',
  allowed = '',
  value: T | '' = '',
  options: Options = {},
): Setting<T | string> {
  return setting<T | string>(value, allowed, reader(form), options)
}

/** Declare a setting that is a comma-separated list of strings matching `form`. */
export function stringList(
  form: string,
  allowed: string,
  value: readonly string[] = [],
  options: Options = {},
): Setting<readonly string[]> {
  const readItem = reader(form)
  const read = (text: string) => {
    const items = text.split(',').map((item) => item.trim())
    return items.every((item) => readItem(item) !== undefined) ? items : undefined
  }
  return setting(value, allowed, read, options)
}

/** Declare a setting whose value is never printed. */
export function secret(
  form = '[!-~]{1,4096}',
  allowed = 'visible ASCII characters',
  options: Options = {},
): Setting<string> {
  return { ...setting('', allowed, reader(form), options), isSecret: true }
}

function reader(form: string): (text: string) => string | undefined {
  const pattern = new RegExp(`^(${form})$`, 's')
  return (text) => (pattern.test(text) ? text : undefined)
}

function setting<T>(
  value: T,
  allowed: string,
  read: Setting<T>['read'],
  { required = false }: Options,
): Setting<T> {
  return { value, allowed, read, isRequired: required, isSecret: false }
}

const HOST = '[A-Za-z0-9_.:\\[\\]-]+'
const ORIGIN = `https?://${HOST}`
// A name, whose last label is no number, or an address; then an optional port.
const LABEL = '[A-Za-z0-9_\\u00a1-\\uffff-]+'
const BYTE = '(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])'
const IPV4 = `${BYTE}(\\.${BYTE}){3}`
const IPV6 = '\\[[0-9A-Fa-f:.]+\\]'
const FILE_HOST = `((${LABEL}\\.)*(?![0-9])${LABEL}|${IPV4}|${IPV6})(:[1-9][0-9]{0,4})?`

const CORE_SETTINGS = {
  model: string('.*', '', 'offline'),
  host: string('.*', '', '127.0.0.1'),
  port: integer(8080, 0, 65_535),
  sessionCapacity: integer(128, 1, 1_000_000),
  sessionIdleSeconds: integer(3600, 1, 31_536_000),
  sessionQueue: integer(8, 0, 10_000),
  maxTurns: integer(64, 1, 100_000),
  historyMessages: integer(40, 1, 100_000),
  historyChars: integer(400_000, 1000, 1_000_000_000),
  promptCache: integer(1, 0, 1),
  reasoning: boolean(true),
  maxSteps: integer(10, 1, 1_000),
  maxToolCalls: integer(64, 1, 10_000),
  maxToolsAtOnce: integer(16, 1, 1_000),
  maxResultChars: integer(200_000, 1_000, 100_000_000),
  turnTimeoutSeconds: integer(300, 1, 86_400),
  maxPromptChars: integer(100_000, 1, 100_000_000),
  maxFiles: integer(8, 0, 1_000),
  maxFileBytes: integer(4_500_000, 1, 1_000_000_000),
  fileHosts: stringList(FILE_HOST, 'a list like files.example.com,127.0.0.1:9000'),
  maxBodyBytes: integer(6_291_456, 1, 1_000_000_000),
  requestTimeoutSeconds: integer(30, 1, 86_400),
  keepAliveSeconds: integer(15, 1, 86_400),
  maxReplyBytes: integer(1_048_576, 1, 1_000_000_000),
  maxSnapshotBytes: integer(8_388_608, 1024, 1_000_000_000),
  shutdownGraceSeconds: integer(8, 0, 86_400),
  allowedHosts: string(`${HOST}( *, *${HOST})*`, 'a list like agent.example.com,10.0.0.5:80'),
  allowedOrigins: string(`${ORIGIN}( *, *${ORIGIN})*`, 'a list like https://www.example.com'),
  logFormat: string('text|json', 'text or json', 'text'),
  apiToken: secret(),
}

/** The settings of every agent: see docs/settings.md. */
export type CoreSettings = SettingsOf<typeof CORE_SETTINGS>

/** Return the core settings and the declared settings, with defaults for missing values. */
export function createSettings<K extends Declarations = {}>(
  values: Partial<CoreSettings & SettingsOf<K>> = {},
  declarations?: K,
): CoreSettings & SettingsOf<K> {
  const settings = Object.entries({ ...CORE_SETTINGS, ...declarations })
  const defaults = Object.fromEntries(settings.map(([name, { value }]) => [name, value]))
  return { ...(defaults as CoreSettings & SettingsOf<K>), ...values }
}

// Names of settings whose values are secret.
const SECRET = /(^|_)(API)?(KEY|PASSWORD|SECRET|TOKEN)$/

/** Read the environment and .env; return settings and findings. A blank value counts as unset. */
export function readSettings<K extends Declarations = {}>(
  declarations?: K,
): [CoreSettings & SettingsOf<K>, Finding[]] {
  const values: Record<string, unknown> = {}
  const findings = readEnvFile()
  for (const [key, declared] of Object.entries({ ...CORE_SETTINGS, ...declarations })) {
    const { allowed } = declared
    const name = key.replace(/[A-Z]/g, '_$&').toUpperCase()
    const text = process.env[name]?.trim()
    if (!text) {
      const message = `${name} is not set: use ${allowed}.`
      if (declared.isRequired) findings.push(diagnostic(`SET-${name}`, message))
      continue
    }
    const value = declared.read(text)
    if (value !== undefined) {
      values[key] = value
      continue
    }
    const isSecret = declared.isSecret || SECRET.test(name)
    const shown = isSecret ? 'invalid' : inspect(withoutPassword(text).slice(0, 80))
    findings.push(diagnostic(`SET-${name}`, `${name} is ${shown}: use ${allowed}.`))
  }
  const settings = createSettings<K>(values as Partial<CoreSettings & SettingsOf<K>>, declarations)
  return [settings, findings]
}

// A comment or NAME=value; a quoted value may span lines.
const NAME = String.raw`[ \t]*(?:export[ \t]+)?[\w.-]+[ \t]*`
const VALUE = String.raw`(?:'[^']*'|"[^"]*"|\x60[^\x60]*\x60|[^'"\x60\s].*|)[ \t]*(?:#.*)?`
const ENV_LINE = new RegExp(`^(?:[ \\t]*#.*|${NAME}=[ \\t]*${VALUE})$`, 'gm')

/** Set the missing environment variables from .env; return findings about the file. */
function readEnvFile(): Finding[] {
  let text = ''
  try {
    const content = existsSync('.env') ? readFileSync('.env') : undefined
    text = new TextDecoder('utf-8', { fatal: true }).decode(content).replaceAll('\r\n', '\n')
  } catch (error) {
    const message = `Cannot read the file .env: ${(error as Error).message}.`
    return [diagnostic('SET-ENV-FILE', message)]
  }
  Object.assign(process.env, { ...parseEnv(text), ...process.env })
  const remaining = text.replace(ENV_LINE, (match) => match.replace(/[^\n]/g, ''))
  const message = 'This line has no effect: write NAME=value.' // does not quote a secret
  return remaining.split('\n').flatMap((line, index) => {
    return line.trim() ? diagnostic('SET-ENV-LINE', message, 'warning', '.env', index + 1) : []
  })
}

/** Return the names of the proxy variables that are set. */
export function proxyVariables(): string {
  const isProxy = (name: string) => /^(all|https?)_proxy$/i.test(name) && process.env[name]
  return Object.keys(process.env).filter(isProxy).sort().join(', ')
}

/** Whether only local programs can reach the server. */
export function isLoopback({ host }: CoreSettings): boolean {
  return ['localhost', '::1'].includes(host) || host.startsWith('127.')
}

const PLAIN_HTTP = /^http:\/\/(?!([^/?#]*@)?(localhost|127\.[0-9.]+|\[::1\])(:[0-9]+)?([/?#]|$))/i

/** Whether requests to this URL reach another host without encryption. @public */
export function isPlainHttp(url: string): boolean {
  return PLAIN_HTTP.test(url)
}

/** Return a URL, or a list of URLs, without user names, passwords and queries. */
export function withoutPassword(url: string): string {
  return url.replace(/(?<![^,\s])((?:\w[\w+.-]*:\/\/)?)[^,\s]*@/g, '$1').replace(/\?[^,\s]*/g, '')
}

/** Return the items of a comma-separated list, in lower case. */
export function splitList(list: string): string[] {
  return list.toLowerCase().match(/[^, ]+/g) ?? []
}
