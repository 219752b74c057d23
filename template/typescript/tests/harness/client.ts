// A test client of a server with a scripted model.

import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { mock, type TestContext } from 'node:test'
import { format } from 'node:util'

import './apart.ts'
import { app } from '../../src/app.ts'
import { type Settings, SETTINGS } from '../../src/harness/enabled.ts'
import type { Capability } from '../../src/harness/capability.ts'
import { type Chunk, TurnRequest } from '../../src/harness/contract.ts'
import { refuseErrors } from '../../src/harness/findings.ts'
import type { Modules } from '../../src/harness/modules.ts'
import { Runtime } from '../../src/harness/runtime.ts'
import { createApp } from '../../src/harness/http/server.ts'
import { createSettings, type SettingsOf } from '../../src/harness/settings.ts'
import { OWN_SETTINGS } from '../../src/own_capabilities.ts'
import { ENVIRONMENT } from '../own_fixtures.ts'
import type { Answer } from './script.ts'
import { ScriptedModel } from './scripted_model.ts'

const PREFIX = 'X-Amzn-Bedrock-AgentCore-Runtime-'
export const SESSION = `${PREFIX}Session-Id`
export const ACTOR = `${PREFIX}Custom-Actor-Id`
export const KEY = 'Idempotency-Key'

const HOST = { Host: '127.0.0.1:8080' }
const JSON_ONLY = { Accept: 'application/json' }
const EVENTS = { Accept: 'text/event-stream' }
// Fail a hanging test.
const PATIENCE_MILLISECONDS = 20_000

mock.method(console, 'error', () => {}) // the log

// Ignore the developer's settings.
for (const name in process.env) {
  if (/^(AGENT_ID|MODEL|SECRET|SESSION)/.test(name)) delete process.env[name]
}
Object.assign(process.env, ENVIRONMENT)

type Fields = Record<string, string>

/** A caller's identity, and the signal that disconnects it. */
interface Caller {
  session?: string
  actor?: string
  key?: string
  signal?: AbortSignal
}

/** A response of the server and the fields of its JSON. */
export interface AgentResponse {
  status: number
  headers: Fields
  /** The body, unchanged. */
  text: string
  /** The JSON object of the body. */
  body: any
  session_id?: string
  /** The number of the turn. */
  turn?: number
  model?: string
  reply?: string
  /** The type of the error, such as "model_failed". */
  error?: string
  /** The pending approvals. */
  waiting?: { id: string; tool: string; input: unknown }[]
  dropped?: boolean
  ended?: boolean
}

const agent = await app.load.agent()
const KIND = { ...SETTINGS, ...OWN_SETTINGS }
type AllSettings = Settings & SettingsOf<typeof OWN_SETTINGS>
const noCapabilities = (_settings: AllSettings, _load: Modules): Capability[] => []

export class Client {
  readonly runtime: Runtime
  readonly model: ScriptedModel

  constructor(
    script: readonly Answer[] = [],
    given: Partial<AllSettings> = {},
    make = noCapabilities,
  ) {
    const settings = createSettings(given, KIND)
    this.runtime = new Runtime(settings, agent, app.load, make(settings, app.load))
    this.model = new ScriptedModel(script)
    this.runtime.model = this.model
  }

  /** Send a prompt and return the response. */
  say(prompt: string, caller: Caller = {}): Promise<AgentResponse> {
    return this.post({ prompt }, headersOf(caller), caller.signal)
  }

  /** Send a prompt and return the response as server-sent events. */
  stream(prompt: string, caller: Caller = {}): Promise<AgentResponse> {
    return this.post({ prompt }, { ...EVENTS, ...headersOf(caller) }, caller.signal)
  }

  /** End a session. */
  end(caller: Caller): Promise<AgentResponse> {
    return this.post({ end_session: true }, headersOf(caller))
  }

  /** Send JSON or unchanged text or bytes to POST /invocations. */
  post(body: object | string, headers: Fields = {}, signal?: AbortSignal): Promise<AgentResponse> {
    const isRaw = typeof body === 'string' || Buffer.isBuffer(body)
    const content = isRaw ? body : JSON.stringify(body)
    return this.request('POST', '/invocations', headers, content, signal)
  }

  get(path: string, headers: Fields = {}): Promise<AgentResponse> {
    return this.request('GET', path, headers)
  }

  /** Send any request. */
  async request(
    method: string,
    path: string,
    headers: Fields = {},
    content: string | Buffer = '',
    signal: AbortSignal = AbortSignal.timeout(PATIENCE_MILLISECONDS),
  ): Promise<AgentResponse> {
    const listener = createApp(this.runtime, await app.load.routes())
    const server = createServer(listener).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const all = { ...HOST, ...JSON_ONLY, ...headers }
    const options = { port, method, path, signal, setHost: false, headers: all }
    try {
      const [response] = await once(request(options).end(content), 'response')
      const received = await text(response)
      const body = received.startsWith('{') ? JSON.parse(received) : {}
      const session_id = response.headers[SESSION.toLowerCase()]
      const error = body.error?.type
      const known = { status: response.statusCode, headers: response.headers }
      return { ...body, ...known, text: received, body, session_id, error }
    } finally {
      server.close()
    }
  }

  /** Run a turn without HTTP; return its texts, tool calls and tool results in order. */
  async takeTurn(prompt: string, session: string): Promise<Chunk[]> {
    const chunks: Chunk[] = []
    const emit = async (chunk: Chunk) => void chunks.push(chunk)
    await this.runtime.spawn(new TurnRequest({ sessionId: session, prompt }), { emit })
    return chunks
  }

  /** Return the messages of a session in the framework's format. */
  async messages<Message>(session: string): Promise<Message[]> {
    const { data } = await this.runtime.sessions.read(session, null)
    return data.messages as Message[]
  }
}

/**
 * Return a client of a server with your capabilities, opened during the test.
 *
 * `values` override settings from the environment.
 */
export async function openClient(
  context: TestContext,
  script: readonly Answer[] = [],
  values: Partial<AllSettings> = {},
): Promise<Client> {
  const [settings, findings] = app.readSettings()
  refuseErrors(findings)
  const all = { ...settings, ...values }
  const capabilities = await app.makeCapabilities(all)
  const client = new Client(script, all, () => capabilities)
  await client.runtime.open()
  client.runtime.model = client.model
  context.after(() => client.runtime.close())
  return client
}

function headersOf({ session, actor, key }: Caller): Fields {
  const headers: Fields = {}
  if (session) headers[SESSION] = session
  if (actor) headers[ACTOR] = actor
  if (key) headers[KEY] = key
  return headers
}

/** Wait until a condition holds. */
export async function until(condition: () => boolean): Promise<void> {
  const late = AbortSignal.timeout(PATIENCE_MILLISECONDS)
  while (!condition()) {
    late.throwIfAborted()
    await new Promise((resolve) => setImmediate(resolve))
  }
}

/** Return the log lines from now to the end of the test. */
export function captureLog(context: TestContext): string[] {
  const lines: string[] = []
  context.mock.method(console, 'error', (...values: unknown[]) => lines.push(format(...values)))
  return lines
}

const HOOKS = `import { registerHooks } from 'node:module'
const empty = { format: 'module', shortCircuit: true,
  source: 'export const OWN_SETTINGS = {}, OWN_CAPABILITIES = []' }
registerHooks({ load: (url, context, next) =>
  url.endsWith('/own_capabilities.ts') ? empty : next(url, context) })`
/** Replaces `own_capabilities`, which may need settings or reject turns. */
export const ALONE = { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(HOOKS)}` }

/** Run a command of the agent with this input. */
export function run(command: string[], input: string, environment: object = {}) {
  const main = `${import.meta.dirname}/../../src/main.ts`
  const env = { ...process.env, ...environment }
  return spawnSync(process.execPath, [main, ...command], { input, env, encoding: 'utf8' })
}
