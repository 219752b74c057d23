// The base class of capabilities, such as a store, a page or one of your own.

import type { RequestListener } from 'node:http'

import type { Change, Chunk, Turn, TurnRequest, TurnResult } from './contract.ts'
import { TimeoutError, withinTime } from './deadline.ts'
import { diagnostic, type Finding } from './findings.ts'
import { describe } from './log.ts'
import type { LanguageModel } from './echo_model.ts'
import type { Modules, Options, Read, Routes, Runtime } from './modules.ts'
import type { SessionStore } from './sessions/session_store.ts'
import type { FrameworkSnapshot, LastTurn, Records, Session } from './sessions/sessions.ts'
import type { SessionHooks, Stage, WaitingTurn } from './sessions/sessions.ts'
import type { CoreSettings } from './settings.ts'
import type { NamedTool } from './tools.ts'

export type { Options, Routes } from './modules.ts'
type ReplaceDroppedArgs = Parameters<NonNullable<SessionHooks['replaceDropped']>>

/** An extension of the agent; all methods are optional. */
export class Capability<S extends CoreSettings = CoreSettings> implements SessionHooks {
  readonly settings: S
  readonly load: Modules

  /**
   * The constructor must not read files or create clients, because `check` has not run yet.
   * `before` holds the capabilities created earlier; `load` loads the project's own modules.
   */
  constructor(settings: S, _before: readonly Capability[], load: Modules) {
    this.settings = settings
    this.load = load
  }

  /** Whether every caller must send an actor id. */
  actorRequired?(): boolean
  /** Whether committed data is waiting to be written. */
  isBusy?(): boolean
  /** A sentence about the saved data of a session, which `chat` prints last. */
  retentionNotice?(): string
  /** Return findings about settings and files. Do not use the network. */
  check?(): Finding[] | Promise<Finding[]>
  /**
   * Call external services for `check --connect`, and return findings.
   *
   * Open and close clients here: `open` and `close` are not called. The time limit is
   * TURN_TIMEOUT_SECONDS.
   */
  ping?(): Promise<Finding[]>
  /**
   * Connect. If this throws AgentError, the command prints its detail and exits.
   *
   * Keep `runtime` for jobs that spawn turns.
   */
  open?(runtime: Runtime): Promise<void>
  /** Write the remaining data and disconnect, within SHUTDOWN_GRACE_SECONDS + 2. */
  close?(): Promise<void>
  /** Whether `close` runs after all other capabilities have closed; it then has 5 seconds. */
  get closesLast(): boolean {
    return false
  }
  /** Whether `wrap` is inside the wrappers of all other capabilities, next to the routes. */
  get wrapsLast(): boolean {
    return false
  }
  /** Return lines that `serve` prints first, without passwords; `address` is the server's. */
  describe?(address: string): string[]
  /** Return the session store; the first store wins. */
  sessionStore?(): SessionStore | undefined
  /** Begin a turn in a custom way, or answer it without a model. */
  beginTurn?(session: Session, turn: Turn): Promise<Stage | TurnResult | undefined>
  /** Handle the begin of a turn that a model answers; `stage.data` may change. */
  turnBegun?(stage: Stage): Promise<void>
  /** Replace records in `last.records` before a save: see SessionHooks. Not async. */
  beforeSave?(session: Session, last: LastTurn & { records: Records }, turn?: Turn): void
  /** Store a turn that waits for approvals. */
  holdTurn?(stage: Stage, snapshot: FrameworkSnapshot): Promise<TurnResult | undefined>
  /** Return the waiting turn of a session. */
  findWaiting?(session: Session): WaitingTurn | undefined
  /** Return replacements for dropped messages: see SessionHooks. */
  replaceDropped?(...args: ReplaceDroppedArgs): Promise<unknown[] | undefined>
  /** Handle the end of a session. */
  sessionEnded?(sessionId: string): void
  /**
   * Parse a custom body of POST /invocations; return undefined to leave it to others.
   *
   * The values of a form are the same as in JSON, except `files`, which are `File`s.
   */
  read?(body: object, sessionId: string): TurnRequest | undefined
  /** Ask the user of `chat` for approvals; return the request that resumes the turn. */
  ask?(result: TurnResult, request: TurnRequest, read: Read): Promise<TurnRequest | undefined>
  /**
   * Return the output of the session's running turn, for `chat --session`, or undefined.
   *
   * The iterable throws AgentError if the turn fails. An abort of `signal` ends the iterable, and
   * does not stop the turn.
   */
  follow?(
    sessionId: string,
    actor: string | null,
    signal: AbortSignal,
  ): Promise<AsyncIterable<Chunk> | undefined>
  /**
   * Return routes. Before a handler runs, the harness checks Host, Origin, Content-Type,
   * API_TOKEN and the actor id, if there is one.
   */
  routes?(): Routes
  /** Return routes that need no API_TOKEN. */
  publicRoutes?(): Routes
  /** Wrap the server's app in middleware; the first capability is the outermost wrapper. */
  wrap?(app: RequestListener): RequestListener
  /** Return tools for every turn; in a name conflict, the agent's own tool wins. */
  tools?(): NamedTool[]
  /**
   * Run code around a turn: call `run`, or throw AgentError before it to reject the turn.
   *
   * Errors after `run` are only logged. After `run`, `turn.outcome` is final.
   */
  around?(turn: Turn, run: () => Promise<unknown>): Promise<unknown>
  /**
   * Wrap or replace the model for the requests of an actor. Not async.
   *
   * The first capability is the outermost wrapper. `prepare` runs later. An AgentError rejects
   * the turn.
   * `turn` is undefined for requests outside a turn.
   */
  wrapModel?(model: LanguageModel, actor: string | null, turn?: Turn): LanguageModel
  /**
   * Handle the end of any turn: `turn` has its outcome and usage.
   *
   * The reply waits for this method, at most five seconds. Errors are only logged.
   */
  ended?(turn: Turn): Promise<void>
  /** Throw AgentError to reject the fork or the end of a session. */
  beforeChange?(change: Change): Promise<void>
  /** Change the options of the turn's agent. AgentError rejects the turn. Not async. */
  prepare?(turn: Turn, options: Options): void
  /** Handle the messages of a committed turn, in the framework's format. Not async. */
  committed?(turn: Turn, messages: unknown[]): void
}

export type CapabilityClass = new (
  settings: never,
  before: readonly Capability[],
  load: Modules,
) => Capability

/** The AgentApp, for a capability's commands. */
export interface App<S extends CoreSettings = CoreSettings> {
  readonly load: Modules
  /** Read the environment and .env; return settings and findings. */
  readSettings(): [S, Finding[]]
  /** Return the findings about the model. */
  checkModel(settings: CoreSettings): Promise<Finding[]>
  /** Return the capabilities. */
  makeCapabilities(settings: S): Promise<Capability[]>
  /** Return the capabilities, for a command that runs no turns; refuse invalid settings. */
  readonly loadCapabilities: LoadCapabilities
}

/** Reads the settings, rejects invalid ones, and returns the capabilities. */
export type LoadCapabilities = () => Promise<readonly Capability[]>

/** A command option: sets `variable` to its argument, or to 1 if the option takes no argument. */
export interface Option {
  readonly variable: string
  readonly takes?: string
  readonly does: string
}

/** A CLI command: --help shows `takes` and `does`. */
export interface Command<S extends CoreSettings = CoreSettings> {
  readonly takes: string
  readonly does: string
  readonly run: (args: string[], app: App<S>) => Promise<void>
}

/** Return the findings of all capabilities from `check` or `ping`. */
export async function checkAll(
  capabilities: readonly Capability[],
  method: 'check' | 'ping' = 'check',
): Promise<Finding[]> {
  const findings: Finding[] = []
  for (const capability of capabilities) {
    try {
      const { turnTimeoutSeconds } = capability.settings
      const results = await within(turnTimeoutSeconds, async () => capability[method]?.())
      findings.push(...(results ?? []))
    } catch (error) {
      const message = `${capability.constructor.name}.${method} failed: ${describe(error)}.`
      findings.push(diagnostic('CAPABILITY', message))
    }
  }
  return findings
}

/** Wrap the model for an actor with all capabilities; the first is the outermost wrapper. */
export function wrapModel(
  capabilities: readonly Capability[],
  model: LanguageModel,
  actor: string | null,
  turn?: Turn,
): LanguageModel {
  let wrapped = model
  for (const capability of capabilities.toReversed()) {
    wrapped = capability.wrapModel?.(wrapped, actor, turn) ?? wrapped
  }
  return wrapped
}

/** Run a capability's method; throw TimeoutError after `seconds`. */
export function within<T>(seconds: number, work: () => Promise<T>): Promise<T> {
  return withinTime(seconds, new AbortController().signal, work, () => new TimeoutError())
}
