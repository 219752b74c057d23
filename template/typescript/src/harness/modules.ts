// The modules of the owner as the harness uses them, and the agent as they use it.

import type { IncomingMessage, ServerResponse } from 'node:http'

import type { Change, Emit, Turn, TurnRequest, TurnResult } from './contract.ts'
import type { LanguageModel } from './echo_model.ts'
import { diagnostic, type Finding } from './findings.ts'
import type { Turns } from './sessions/running_turns.ts'
import type { Sessions } from './sessions/sessions.ts'
import type { CoreSettings } from './settings.ts'
import type { AgentOptions, OwnTools, Tools } from './tools.ts'

/** The module `agent`: the prompt and the tools of the agent. */
export interface AgentModule extends AgentOptions {
  readonly SYSTEM_PROMPT: string
  readonly TOOLS: OwnTools
  /** The names of tools whose result ends the turn: its text is the reply. */
  readonly FINAL_TOOLS?: readonly string[]
}

/** The module `model`: which model answers. */
export interface ModelModule {
  /** What to look at when the provider refuses a call. */
  readonly CREDENTIALS: string
  /** What to look at when the provider cannot be reached. */
  readonly ADDRESS: string
  /** Return the model of these settings. */
  buildModel(settings: CoreSettings): LanguageModel
  /** Return findings about missing or invalid settings of the model. */
  checkModel(settings: CoreSettings): Finding[] | Promise<Finding[]>
  /** Return the address of the provider. */
  modelEndpoint(settings: CoreSettings): string | Promise<string>
}

/** Loads the modules that need a framework or the client of a vendor. */
export interface Modules {
  /** The folder of your modules. */
  readonly folder: string
  agent(): Promise<AgentModule>
  model(): Promise<ModelModule>
  routes(): Promise<Routes>
  /** Long-term memory knows its class. */
  memory?(): Promise<object>
}

/** A request to a route, after its checks. */
export interface RouteCall {
  /** The actor of the request; null without one, and for public routes. */
  readonly actor: string | null
  /** The segments of the path that match `{name}`, decoded. */
  readonly params: Readonly<Record<string, string>>
  /** Return the body. Throws AgentError `payload_too_large`. */
  body(): Promise<Uint8Array>
  /** Return the value of the body. Throws AgentError, as `body` does, or `invalid_json`. */
  json(): Promise<unknown>
}

/** Answers a request to a route. */
export type Handler = (
  request: IncomingMessage,
  response: ServerResponse,
  runtime: Runtime,
  call: RouteCall,
) => void | Promise<void>

/** What a route allows. */
export interface RouteOptions {
  /** Whether it needs no API_TOKEN; then it has no actor. */
  readonly public?: boolean
  /** The content types that a page may send. */
  readonly types?: readonly string[]
  /** The maximum size of a body; without it MAX_BODY_BYTES. */
  readonly maxBytes?: number
}

/** A handler, and what its route allows. */
export interface Route extends RouteOptions {
  readonly handler: Handler
}

/** Return a route of an owner or a capability; a handler alone means `route(handler)`. */
export function route(handler: Handler, options: RouteOptions = {}): Route {
  return { ...options, handler }
}

/** Routes by method and path, as in `GET /orders/{id}`; `{id}` matches one segment. */
export type Routes = Readonly<Record<string, Handler | Route>>

const HARNESS_ROUTES = ['POST /invocations', 'GET /ping']

/** Return findings about the names and the values of routes; `file` has them. */
export function checkRoutes(routes: Routes | undefined, file = 'src/routes.ts'): Finding[] {
  const report = (message: string) => [diagnostic('ROUTES', message, 'error', file)]
  if (!routes) return report('ROUTES is not exported.')
  return Object.entries(routes).flatMap(([name, given]) => {
    if (!/^[A-Z]+ \/\S*$/.test(name)) {
      return report(`'${name}' is not a valid route: write it like 'GET /version'.`)
    }
    if (HARNESS_ROUTES.includes(name)) {
      return report(`The harness has the route '${name}': choose another path.`)
    }
    const handler = typeof given === 'function' ? given : given?.handler
    if (typeof handler === 'function') return []
    return report(`The route '${name}' is neither a handler nor a \`route(handler)\`.`)
  })
}

/** The framework's options for the agent of one turn. */
export interface Options {
  model: LanguageModel
  tools: Tools
  [name: string]: unknown
}

/** The running agent, as routes and turns use it. */
export interface Runtime {
  readonly settings: CoreSettings
  readonly agent: AgentModule
  readonly sessions: Sessions
  readonly turns: Turns
  /** Whether every caller must send an actor id. */
  readonly actorRequired: boolean
  /** Whether data of a committed turn is still to be written. */
  readonly isBusy: boolean
  /** Return the tools of every turn. */
  tools(): Tools
  /** Return the request that a body makes of a capability. */
  read(body: object, sessionId: string): TurnRequest | undefined
  /** Ask a person in the terminal what a turn waits for; return the request to go on. */
  ask(result: TurnResult, request: TurnRequest, read: Read): Promise<TurnRequest | undefined>
  /**
   * Run a turn that no client watches: limits, queue, drain and the log line apply.
   *
   * An abort of `signal` cancels it. Throws AgentError, or the reason of the abort.
   */
  spawn(request: TurnRequest, options?: SpawnOptions): Promise<TurnResult>
  /** Run a turn; `opening` is awaited once it may start. Throws like `spawn`. */
  start(turn: Turn, options?: StartOptions): Promise<TurnResult>
  /** Return what the agent of a turn is made with. Throws AgentError to refuse the turn. */
  prepare(turn: Turn): Options
  /** Let all capabilities refuse a change. Throws AgentError. */
  beforeChange(change: Change): Promise<void>
  /** Pass on the messages of a committed turn. */
  committed(turn: Turn, messages: unknown[]): void
}

export interface SpawnOptions {
  readonly emit?: Emit
  readonly signal?: AbortSignal
}

export interface StartOptions {
  readonly signal?: AbortSignal
  readonly opening?: () => Promise<void>
}

/** Asks a question in the terminal; null is the end of the conversation. */
export type Read = (question: string) => Promise<string | null>

/** Return findings about names that the module `agent` does not export. */
export function checkAgent(agent: AgentModule): Finding[] {
  const missing = ['SYSTEM_PROMPT', 'TOOLS'].filter((name) => !Object.hasOwn(agent, name))
  return missing.map((name) => reportAgent(`${name} is not exported.`))
}

/** Return findings about FINAL_TOOLS that are not among the names of all tools. */
export function checkFinalTools(agent: AgentModule, names: readonly string[]): Finding[] {
  const unknown = agent.FINAL_TOOLS?.filter((name) => !names.includes(name)) ?? []
  return unknown.map((name) => {
    return reportAgent(`FINAL_TOOLS names '${name}', but no tool has this name.`)
  })
}

function reportAgent(message: string): Finding {
  return diagnostic('AGENT', message, 'error', 'src/agent.ts')
}
