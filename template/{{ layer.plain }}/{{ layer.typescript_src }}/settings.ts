// Every setting: its environment variable, its default and what it allows.

import { existsSync } from 'node:fs'
import { inspect } from 'node:util'

// The settings that are whole numbers: the default, the lowest and the highest value.
const NUMBERS = {
  port: [8080, 0, 65_535],
  sessionCapacity: [128, 1, 1_000_000],
  sessionIdleSeconds: [3600, 1, 31_536_000],
  sessionQueue: [8, 0, 10_000],
  historyMessages: [40, 1, 100_000],
  maxSteps: [10, 1, 1_000],
  turnTimeoutSeconds: [300, 1, 86_400],
  maxPromptChars: [100_000, 1, 100_000_000],
  maxBodyBytes: [1_048_576, 1, 1_000_000_000],
  shutdownGraceSeconds: [8, 0, 86_400],
} as const

type Name = keyof typeof NUMBERS
type Given = { model?: string; host?: string } & Partial<Record<Name, number>>

/** The settings of one process; README.md says what each one does. */
export type Settings = Readonly<Required<Given>>

/** Settings with the defaults for what is not given. */
export function createSettings(given: Given = {}): Settings {
  const numbers = Object.entries(NUMBERS).map(([name, [value]]) => [name, value])
  return { model: 'offline', host: '127.0.0.1', ...Object.fromEntries(numbers), ...given }
}

/** Whether only programs of this machine can reach the server. */
export function isLoopback({ host }: Settings): boolean {
  return ['localhost', '::1'].includes(host) || host.startsWith('127.')
}

/** One finding of `check`; line 0 is no line. */
export interface Diagnostic {
  id: string
  severity: 'error' | 'warning'
  file: string
  line: number
  message: string
}

/** An error in the environment. */
export function diagnostic(id: string, message: string): Diagnostic {
  return { id, severity: 'error', file: 'environment', line: 0, message }
}

/** The settings in the environment and .env, and what is wrong there. Blank means unset. */
export function readSettings(): [Settings, Diagnostic[]] {
  const wrong: Diagnostic[] = []
  try {
    if (existsSync('.env')) process.loadEnvFile('.env')
  } catch (error) {
    const { message } = error as Error
    wrong.push(diagnostic('SET-ENV-FILE', `The file .env cannot be read: ${message}`))
  }
  const read = (name: string) => process.env[name]?.trim() ?? ''
  const given: Given = {}
  if (read('MODEL')) given.model = read('MODEL')
  if (read('HOST')) given.host = read('HOST')
  for (const [setting, [, low, high]] of Object.entries(NUMBERS)) {
    const name = setting.replace(/[A-Z]/g, '_$&').toUpperCase()
    const text = read(name)
    if (/^[0-9]{1,10}$/.test(text) && low <= Number(text) && Number(text) <= high) {
      given[setting as Name] = Number(text)
    } else if (text) {
      const range = `allowed is a whole number from ${low} to ${high}.`
      wrong.push(diagnostic(`SET-${name}`, `${name} is ${inspect(text.slice(0, 80))}: ${range}`))
    }
  }
  return [createSettings(given), wrong]
}
