// A client of a server whose model plays a script.

import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { mock } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import './apart.ts'
import { type Settings, SETTINGS } from '../src/capabilities.ts'
import type { Capability } from '../src/capability.ts'
import { Runtime } from '../src/runtime.ts'
import { createApp } from '../src/server.ts'
import { createSettings } from '../src/settings.ts'
import { ScriptedModel, type Step } from './scripted_model.ts'

const PREFIX = 'X-Amzn-Bedrock-AgentCore-Runtime-'
export const SESSION = `${PREFIX}Session-Id`
export const ACTOR = `${PREFIX}Custom-Actor-Id`
export const KEY = 'Idempotency-Key'
export const POST = 'POST /invocations'
export const JSON_ONLY = { Host: '127.0.0.1:8080', Accept: 'application/json' }

const LATE = () => AbortSignal.timeout(60_000)

mock.method(console, 'error', () => {}) // the log

// The developer's own settings do not affect a test.
for (const name in process.env) {
  if (/^(AGENT_ID|MODEL|SECRET|SESSION)/.test(name)) delete process.env[name]
}

const noCapabilities = (_settings: Settings): Capability[] => []

type Answer = [status: number, session: string | undefined, text: string]

export class Client {
  readonly runtime: Runtime
  readonly model: ScriptedModel

  constructor(script: Step[] = [], given: Partial<Settings> = {}, make = noCapabilities) {
    const settings = createSettings(given, SETTINGS)
    this.runtime = new Runtime(settings, make(settings))
    this.model = this.runtime.model = new ScriptedModel(script)
  }

  /** Return status, session and text of the answer; the client leaves at the signal. */
  async send(route: string, headers: object, body = Buffer.of(), leave = LATE()): Promise<Answer> {
    const server = createServer(createApp(this.runtime)).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const [method, path] = route.split(' ')
    const { port } = server.address() as AddressInfo
    const options = { port, method, path, signal: leave, setHost: false, headers: { ...headers } }
    try {
      const [response] = await once(request(options).end(body), 'response')
      return [response.statusCode, response.headers[SESSION.toLowerCase()], await text(response)]
    } finally {
      server.close()
    }
  }

  /** Return the outcome of a turn in session@actor#key, or with a ! of ending that session. */
  async say(address: string, prompt = 'hi', leave = LATE()): Promise<string> {
    await sleep(1200 * (address.split('~').length - 1))
    const names: Record<string, string> = { '': SESSION, '@': ACTOR, '#': KEY }
    const found = address.matchAll(/([@#]?)([\p{L}\p{N}]+)/gu)
    const values = [...found].map(([, mark = '', value]) => [names[mark], value])
    const headers = { ...JSON_ONLY, ...Object.fromEntries(values) }
    const body = JSON.stringify(address.includes('!') ? { end_session: true } : { prompt })
    try {
      const [, , text] = await this.send(POST, headers, Buffer.from(body), leave)
      const { turn, error } = JSON.parse(text)
      return String(turn ?? error?.type ?? 'end')
    } catch (error) {
      if ((error as Error).name !== 'AbortError') throw error
      return 'gone'
    }
  }
}

const HOOKS = `import { registerHooks } from 'node:module'
const empty = { format: 'module', shortCircuit: true,
  source: 'export const OWN_SETTINGS = {}, OWN_CAPABILITIES = []' }
registerHooks({ load: (url, context, next) =>
  url.endsWith('/own_capabilities.ts') ? empty : next(url, context) })`
/** Leaves out your capabilities, which may refuse to start, or to answer nobody. */
export const ALONE = { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(HOOKS)}` }

/** Run a command of the agent with this input. */
export function run(command: string[], input: string, environment: object = {}) {
  const main = `${import.meta.dirname}/../src/main.ts`
  const env = { ...process.env, ...environment }
  return spawnSync(process.execPath, [main, ...command], { input, env, encoding: 'utf8' })
}
