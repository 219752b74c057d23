// Every setting: its environment variable, its default and what it allows.

import { existsSync } from 'node:fs'
import { inspect } from 'node:util'

/** The settings of one process; README.md says what each one does. */
export class Settings {
  readonly model: string = 'offline'
  readonly host: string = '127.0.0.1'
  readonly port: number = 8080
  readonly sessionCapacity: number = 128
  readonly sessionIdleSeconds: number = 3600
  readonly sessionQueue: number = 8
  readonly historyMessages: number = 40
  readonly maxSteps: number = 10
  readonly turnTimeoutSeconds: number = 300
  readonly maxPromptChars: number = 100_000
  readonly maxBodyBytes: number = 1_048_576
  readonly shutdownGraceSeconds: number = 8

  constructor(given: Partial<Omit<Settings, 'isLoopback'>> = {}) {
    Object.assign(this, given)
  }

  /** Whether only programs of this machine can reach the server. */
  get isLoopback(): boolean {
    return ['localhost', '::1'].includes(this.host) || this.host.startsWith('127.')
  }
}

// The settings that are whole numbers, each with its lowest and highest value.
const RANGES: Record<string, [number, number]> = {
  port: [0, 65_535],
  sessionCapacity: [1, 1_000_000],
  sessionIdleSeconds: [1, 31_536_000],
  sessionQueue: [0, 10_000],
  historyMessages: [1, 100_000],
  maxSteps: [1, 1_000],
  turnTimeoutSeconds: [1, 86_400],
  maxPromptChars: [1, 100_000_000],
  maxBodyBytes: [1, 1_000_000_000],
  shutdownGraceSeconds: [0, 86_400],
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
  if (existsSync('.env')) process.loadEnvFile('.env')
  const found: Record<string, string | number> = {}
  const wrong: Diagnostic[] = []
  for (const setting of Object.keys(new Settings())) {
    const name = setting.replace(/[A-Z]/g, '_$&').toUpperCase()
    const text = process.env[name]?.trim() ?? ''
    const [low, high] = RANGES[setting] ?? [0, 0]
    if (text && !high) {
      found[setting] = text
    } else if (/^[0-9]{1,10}$/.test(text) && low <= Number(text) && Number(text) <= high) {
      found[setting] = Number(text)
    } else if (text) {
      const range = `allowed is a whole number from ${low} to ${high}.`
      wrong.push(diagnostic(`SET-${name}`, `${name} is ${inspect(text.slice(0, 80))}: ${range}`))
    }
  }
  return [new Settings(found), wrong]
}
