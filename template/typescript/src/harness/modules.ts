// The interfaces of the project's own modules and of the running agent.

import type { IncomingMessage, ServerResponse } from 'node:http'

import type { Change, Emit, Turn, TurnRequest, TurnResult } from './contract.ts'
import type { LanguageModel } from './echo_model.ts'
import { diagnostic, type Finding } from './findings.ts'
import type { Turns } from './sessions/running_turns.ts'
import type { Sessions } from './sessions/sessions.ts'
import type { CoreSettings } from './settings.ts'
import type { AgentOptions, OwnTools, Tools } from './tools.ts'

/** The module `agent`: system prompt and tools. */
export interface AgentModule extends AgentOptions {
  readonly SYSTEM_PROMPT: string
  readonly TOOLS: OwnTools
  /** Names of tools whose result ends the turn and becomes the reply. */
  readonly FINAL_TOOLS?: readonly string[]
}

/** The module `model`: the model and its provider. */
export interface ModelModule {
  /** The settings to check if the provider rejects a call. */
  readonly CREDENTIALS: string
  /** The settings to check if the provider cannot be reached. */
  readonly ADDRESS: string
  /** Return the framework's model. */
  buildModel(settings: CoreSettings): LanguageModel
  /** Return findings about missing or invalid settings of the model. */
  checkModel(settings: CoreSettings): Finding[] | Promise<Finding[]>
  /** The media types that the model accepts; by default those of the vendor. */
  readonly FILE_TYPES?: readonly string[]
  /** Return the address of the provider. */
  modelEndpoint(settings: CoreSettings): string | Promise<string>
}

/** Loads the modules that need a framework or a client. */
export interface Modules {
  /** The folder of your modules. */
  readonly folder: string
  agent(): Promise<AgentModule>
  model(): Promise<ModelModule>
  routes(): Promise<Routes>
  /** The policy of long-term memory, if the project has memory. */
  memory?(): Promise<object>
}

/** A checked request to a route. */
export interface RouteCall {
  /** The actor of the request; null if the route is public or the request has no actor. */
  readonly actor: string | null
  /** The segments of the path that match `{name}`, decoded. */
  readonly params: Readonly<Record<string, string>>
  /** Return the body. Throws AgentError `payload_too_large`. */
  body(): Promise<Uint8Array>
  /** Return the parsed body. Throws AgentError `payload_too_large` or `invalid_json`. */
  json(): Promise<unknown>
}

/** Answers a request to a route. */
export type Handler = (
  request: IncomingMessage,
  response: ServerResponse,
  runtime: Runtime,
  call: RouteCall,
) => void | Promise<void>

/** The options of a route. */
export interface RouteOptions {
  /** Whether the route needs no API_TOKEN; a public route gets no actor. */
  readonly public?: boolean
  /** The content types that web pages may send; `application/json` by default. */
  readonly types?: readonly string[]
  /** The maximum size of a body; MAX_BODY_BYTES by default. */
  readonly maxBytes?: number
}

/** A handler with options. */
export interface Route extends RouteOptions {
  readonly handler: Handler
}

/** Return a route with options; a plain handler means `route(handler)`. */
export function route(handler: Handler, options: RouteOptions = {}): Route {
  return { ...options, handler }
}

/**
 * Routes by method and path, as in `GET /orders/{id}`.
 *
 * `{id}` matches one segment, `{id:path}` several.
 */
export type Routes = Readonly<Record<string, Handler | Route>>

const HARNESS_ROUTES = ['POST /invocations', 'POST /invocations/', 'GET /ping']

/** Return findings about mistakes in the routes of `file`. */
export function checkRoutes(routes: Routes | undefined, file = 'src/routes.ts'): Finding[] {
  const report = (message: string) => [diagnostic('ROUTES', message, 'error', file)]
  if (!routes) return report('ROUTES is missing: export it.')
  return Object.entries(routes).flatMap(([name, entry]) => {
    if (!/^[A-Z]+ \/\S*$/.test(name)) {
      return report(`'${name}' is not a valid route: write it like 'GET /version'.`)
    }
    if (HARNESS_ROUTES.includes(name)) {
      return report(`The harness defines the route '${name}': choose another path.`)
    }
    const handler = typeof entry === 'function' ? entry : entry?.handler
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

/** The running agent, for capabilities and routes. */
export interface Runtime {
  readonly settings: CoreSettings
  readonly agent: AgentModule
  readonly sessions: Sessions
  readonly turns: Turns
  /** The media types of the files that the model accepts. */
  readonly fileTypes: readonly string[]
  /** Whether every caller must send an actor id. */
  readonly actorRequired: boolean
  /** Whether committed data is waiting to be written. */
  readonly isBusy: boolean
  /** Return the tools of every turn. */
  tools(): Tools
  /** Return the request that a capability parses from a body. */
  readRequest(body: object, sessionId: string): TurnRequest | undefined
  /** Ask the user of `chat` for approvals; return the request that resumes the turn. */
  askApproval(
    result: TurnResult,
    request: TurnRequest,
    read: Read,
  ): Promise<TurnRequest | undefined>
  /**
   * Run a turn without a client. The turn is subject to the limits, the session queue and the
   * shutdown, and it is logged.
   *
   * An abort of `signal` cancels the turn. Throws AgentError, or the reason of the abort.
   */
  spawn(request: TurnRequest, options?: SpawnOptions): Promise<TurnResult>
  /** Run `opening`, such as checks, and then the turn. Throws the errors of `spawn`. */
  start(turn: Turn, options?: StartOptions): Promise<TurnResult>
  /** Return the options of the turn's agent, such as model and tools. Throws AgentError. */
  prepare(turn: Turn): Options
  /** Call `beforeChange` of all capabilities. Throws AgentError. */
  beforeChange(change: Change): Promise<void>
  /** Pass the messages of a committed turn to all capabilities. */
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

/** Asks a question in the terminal; null means the end of the conversation. */
export type Read = (question: string) => Promise<string | null>

/**
 * Return findings about exports of the module `agent` that are missing or have another type.
 *
 * `mistakesIn` returns the mistakes in its tools.
 */
export function checkAgent(
  agent: AgentModule,
  mistakesIn: (tools: OwnTools) => string[],
): Finding[] {
  const missing = ['SYSTEM_PROMPT', 'TOOLS'].filter((name) => !Object.hasOwn(agent, name))
  if (missing.length > 0) {
    return missing.map((name) => reportAgent(`${name} is missing: export it.`))
  }
  const mistakes = mistakesIn(agent.TOOLS)
  if (!Array.isArray(agent.FINAL_TOOLS ?? [])) {
    mistakes.push("FINAL_TOOLS is not an array of names: write it like `['hand_over']`.")
  }
  return mistakes.map(reportAgent)
}

/** Return a finding for each name in FINAL_TOOLS that no tool has. */
export function checkFinalTools(agent: AgentModule, names: readonly string[]): Finding[] {
  const unknown = agent.FINAL_TOOLS?.filter((name) => !names.includes(name)) ?? []
  return unknown.map((name) => {
    return reportAgent(`FINAL_TOOLS names '${name}', but no tool has this name.`)
  })
}

function reportAgent(message: string): Finding {
  return diagnostic('AGENT', message, 'error', 'src/agent.ts')
}
