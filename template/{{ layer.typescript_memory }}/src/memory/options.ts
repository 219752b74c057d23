// Every setting of the memory: its environment variable, its default and what it allows.

import { inspect } from 'node:util'

import { type Diagnostic, diagnostic } from '../settings.ts'

// The options that are whole numbers: the default, the lowest and the highest value.
const NUMBERS = {
  storeTimeoutSeconds: [3, 1, 60],
  maxSnapshotBytes: [8_388_608, 1024, 1_000_000_000],
  checkpoints: [0, 0, 1000],
  secretCacheSeconds: [300, 0, 86_400],
  recallTimeoutSeconds: [2, 1, 60],
  addMemoryTool: [0, 0, 1],
} as const

// What AgentCore takes as the value of a variable.
const PROJECT = /^[a-z0-9][a-z0-9_-]{0,63}$/

type Name = keyof typeof NUMBERS

/** The options of one process; README.md says what each one does. */
export type Options = Readonly<
  { agentId: string | null; projectId: string | null } & Record<Name, number>
>

/** Options with the defaults for what is not given. */
export function createOptions(given: Partial<Options> = {}): Options {
  const numbers = Object.entries(NUMBERS).map(([name, [value]]) => [name, value])
  return { agentId: null, projectId: null, ...Object.fromEntries(numbers), ...given }
}

/** The options in the environment, and what is wrong there. Blank means unset. */
export function readOptions(): [Options, Diagnostic[]] {
  const wrong: Diagnostic[] = []
  const given: { -readonly [Key in keyof Options]?: Options[Key] } = {}
  given.agentId = process.env.AGENT_ID?.trim() || null
  for (const [option, [, low, high]] of Object.entries(NUMBERS)) {
    const name = option.replace(/[A-Z]/g, '_$&').toUpperCase()
    const text = process.env[name]?.trim() ?? ''
    if (/^[0-9]{1,10}$/.test(text) && low <= Number(text) && Number(text) <= high) {
      given[option as Name] = Number(text)
    } else if (text) {
      const range = `allowed is a whole number from ${low} to ${high}.`
      wrong.push(diagnostic(`SET-${name}`, `${name} is ${inspect(text.slice(0, 80))}: ${range}`))
    }
  }
  const project = process.env.PROJECT_ID?.trim() ?? ''
  if (PROJECT.test(project)) given.projectId = project
  else if (project) {
    const form = 'allowed is 1 to 64 of a-z 0-9 _ -, not first _ or -.'
    wrong.push(
      diagnostic('SET-PROJECT_ID', `PROJECT_ID is ${inspect(project.slice(0, 80))}: ${form}`),
    )
  }
  return [createOptions(given), wrong]
}
