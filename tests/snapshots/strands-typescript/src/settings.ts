// Every setting: its environment variable, its default and its allowed values.

import { existsSync } from 'node:fs'
import { inspect } from 'node:util'

// The settings that are whole numbers: the default, the lowest and the highest value.
const INTEGERS = {
  port: [8080, 0, 65_535],
  sessionCapacity: [128, 1, 1_000_000],
  sessionIdleSeconds: [3600, 1, 31_536_000],
  sessionQueue: [8, 0, 10_000],
  maxTurns: [64, 1, 100_000],
  historyMessages: [40, 1, 100_000],
  maxSteps: [10, 1, 1_000],
  turnTimeoutSeconds: [300, 1, 86_400],
  maxPromptChars: [100_000, 1, 100_000_000],
  maxBodyBytes: [1_048_576, 1, 1_000_000_000],
  requestTimeoutSeconds: [30, 1, 86_400],
  maxReplyBytes: [1_048_576, 1, 1_000_000_000],
  maxSnapshotBytes: [8_388_608, 1024, 1_000_000_000],
  shutdownGraceSeconds: [8, 0, 86_400],
  // A capability adds its settings here.
} as const

const NAME = '[A-Za-z0-9_.:\\[\\]-]+' // of a host, with or without its port

// The settings that are texts of a form, and the form in words.
const FORMS: Record<string, [form: string, allowed: string]> = {
  allowedHosts: [`${NAME}( *, *${NAME})*`, 'a list like agent.example.com,10.0.0.5:80'],
  allowedOrigins: [
    `https?://${NAME}( *, *https?://${NAME})*`,
    'a list like https://www.example.com',
  ],
  apiToken: ['[!-~]{1,4096}', 'a text of visible ASCII characters'],
}

// The settings that are texts, and their defaults.
const TEXTS = {
  model: 'offline',
  host: '127.0.0.1',
  allowedHosts: '',
  allowedOrigins: '',
  apiToken: '',
}

/** The settings of one process; README.md explains each. */
export type Settings = Readonly<typeof TEXTS & Record<keyof typeof INTEGERS, number>>

/** Settings with the defaults for those that are not given. */
export function createSettings(given: Partial<Settings> = {}): Settings {
  const integers = Object.entries(INTEGERS).map(([name, [value]]) => [name, value])
  return { ...TEXTS, ...Object.fromEntries(integers), ...given }
}

/** Whether only programs of this machine can reach the server. */
export function isLoopback({ host }: Settings): boolean {
  return ['localhost', '::1'].includes(host) || host.startsWith('127.')
}

/** Return a URL to show, without its user and password. */
export function withoutPassword(url: string): string {
  return url.replace(/\/\/[^/]*@/, '//')
}

/** Return the items of a setting that is a list, in lower case. */
export function splitList(text: string): string[] {
  return text.toLowerCase().match(/[^, ]+/g) ?? []
}

/** One finding of `check`; line 0 is no line. */
export interface Diagnostic {
  id: string
  severity: 'error' | 'warning'
  file: string
  line: number
  message: string
}

/** Return one finding of `check`. */
export function diagnostic(
  id: string,
  message: string,
  severity: Diagnostic['severity'] = 'error',
  file = 'environment',
  line = 0,
): Diagnostic {
  return { id, severity, file, line, message }
}

/** The end of a command: its message goes to stderr. Exit code 2 is for wrong arguments. */
export class CommandError extends Error {
  readonly exitCode: number

  constructor(message: string, exitCode = 1) {
    super(message)
    this.exitCode = exitCode
  }
}

/** Return a finding as one line. */
export function formatFinding({ file, line, id, message }: Diagnostic): string {
  return `${file}:${line} ${id} ${message}`
}

/** Throw CommandError when one of the findings is an error. */
export function refuseErrors(findings: readonly Diagnostic[]): void {
  const errors = findings.filter(({ severity }) => severity === 'error')
  const lines = errors.map((it) => (it.file === 'environment' ? it.message : formatFinding(it)))
  if (lines.length > 0) throw new CommandError(lines.join('\n'))
}

/** Read the environment and .env; return the settings and the findings. Blank means unset. */
export function readSettings(): [Settings, Diagnostic[]] {
  const values: Record<string, string | number> = {}
  const findings: Diagnostic[] = []
  try {
    if (existsSync('.env')) process.loadEnvFile('.env')
  } catch (error) {
    const message = `Cannot read the file .env: ${(error as Error).message}.`
    findings.push(diagnostic('SET-ENV-FILE', message))
  }
  for (const setting of Object.keys(createSettings())) {
    const name = setting.replace(/[A-Z]/g, '_$&').toUpperCase()
    const text = process.env[name]?.trim() ?? ''
    const [, low, high] = INTEGERS[setting as keyof typeof INTEGERS] ?? [null, 0, 0]
    const [form, allowed] = FORMS[setting] ?? ['.*', `a whole number from ${low} to ${high}`]
    if (text && !high && RegExp(`^(${form})$`, 's').test(text)) {
      values[setting] = text
    } else if (/^[0-9]{1,10}$/.test(text) && low <= Number(text) && Number(text) <= high) {
      values[setting] = Number(text)
    } else if (text) {
      const shown = name === 'API_TOKEN' ? 'invalid' : inspect(text.slice(0, 80))
      findings.push(diagnostic(`SET-${name}`, `${name} is ${shown}: allowed is ${allowed}.`))
    }
  }
  return [createSettings(values), findings]
}
