// What can plug into an agent, such as a session store or a page.

import type { RequestListener } from 'node:http'

import type { Change, Turn, TurnRequest, TurnResult } from './contract.ts'
import { TimeoutError, withinTime } from './deadline.ts'
import { diagnostic, type Finding } from './findings.ts'
import { describe } from './log.ts'
import type { LanguageModel } from './echo_model.ts'
import type { Modules, Options, Read, Routes, Runtime } from './modules.ts'
import type { SessionStore } from './sessions/session_store.ts'
import type { Session, SessionHooks, Stage } from './sessions/sessions.ts'
import type { Taken, WaitingTurn } from './sessions/sessions.ts'
import type { CoreSettings } from './settings.ts'
import type { NamedTool } from './tools.ts'

export type { Options, Routes } from './modules.ts'
type Dropped = Parameters<NonNullable<SessionHooks['replaceDropped']>>

/** Plugs into an agent; a method that is left out does nothing. */
export class Capability<S extends CoreSettings = CoreSettings> implements SessionHooks {
  readonly settings: S
  readonly load: Modules

  /**
   * Must not read files or make clients: `check` has not run yet. `before` holds the capabilities
   * made before this one; `load` loads the modules of the owner, such as the one of the model.
   */
  constructor(settings: S, _before: readonly Capability[], load: Modules) {
    this.settings = settings
    this.load = load
  }

  /** Whether every caller must send an actor id. */
  actorRequired?(): boolean
  /** Whether data of a committed turn is still to be written. */
  isBusy?(): boolean
  /** What was kept of a session, printed at the end of `chat`; '' for nothing. */
  retentionNotice?(): string
  /** Return findings about settings and files, without using the network. */
  check?(): Finding[] | Promise<Finding[]>
  /**
   * Call services for `check --connect`, and return findings. `open` is not called before this,
   * nor `close` after it: close what you open. Its limit is TURN_TIMEOUT_SECONDS.
   */
  ping?(): Promise<Finding[]>
  /**
   * Connect; `runtime` can `spawn` turns from now on. Throws AgentError; its detail is for the
   * owner.
   */
  open?(runtime: Runtime): Promise<void>
  /** Write the remaining data and disconnect, within SHUTDOWN_GRACE_SECONDS + 2. */
  close?(): Promise<void>
  /** Whether `close` runs after that of other capabilities, and has only five seconds. */
  get closesLast(): boolean {
    return false
  }
  /** Return what is contacted, a line each, without passwords; `address` is the server's. */
  describe?(address: string): string[]
  /** Return where sessions live; the first capability that has a store decides. */
  sessionStore?(): SessionStore | undefined
  /** Begin a turn in place of the session. Throws AgentError to refuse it. */
  beginTurn?(session: Session, turn: Turn): Promise<Stage | TurnResult | undefined>
  /** Keep a turn whose tool calls wait, beside what is committed. */
  holdTurn?(stage: Stage, taken: Taken): Promise<TurnResult | undefined>
  /** Return the turn of a session that waits. */
  findWaiting?(session: Session): WaitingTurn | undefined
  /** Return what takes the place of dropped messages: see SessionHooks. */
  replaceDropped?(...dropped: Dropped): Promise<unknown[] | undefined>
  /** Note that a session has ended. */
  sessionEnded?(sessionId: string): void
  /** Return the request that a body of POST /invocations makes; undefined if it is not yours. */
  read?(body: object, sessionId: string): TurnRequest | undefined
  /** Ask a person in the terminal what a turn waits for; return the request to go on. */
  ask?(result: TurnResult, request: TurnRequest, read: Read): Promise<TurnRequest | undefined>
  /**
   * Return routes that are called after the checks of Host, Origin and token. A `route(…)` also
   * has the actor of the request checked.
   */
  routes?(): Routes
  /** Return routes that need no token. */
  publicRoutes?(): Routes
  /** Return the server's app wrapped in your middleware; the first one's is outermost. */
  wrap?(app: RequestListener): RequestListener
  /** Return tools for every turn; if a name occurs twice, the agent's own tool wins. */
  tools?(): NamedTool[]
  /**
   * Surround a turn: call `run` once, or throw AgentError before it to refuse the turn. The turn
   * ends as `run` does, whatever this returns; what it throws later is only logged.
   */
  around?(turn: Turn, run: () => Promise<unknown>): Promise<unknown>
  /**
   * Return a model wrapped in your own, or another one, for requests on behalf of an actor. `turn`
   * is undefined if no turn waits for the answers. `prepare` comes later. Not async.
   */
  wrapModel?(model: LanguageModel, actor: string | null, turn?: Turn): LanguageModel
  /**
   * Note the end of a turn, of a failed or cancelled one too; its outcome is known. The reply waits
   * for this, at most five seconds; an error is only logged.
   */
  ended?(turn: Turn): Promise<void>
  /** Throw AgentError to refuse the request of a caller to fork or end a session. */
  beforeChange?(change: Change): Promise<void>
  /** Change the options of the turn's agent. AgentError refuses the turn. Must not be async. */
  prepare?(turn: Turn, options: Options): void
  /** Use the messages that a committed turn added, in the framework's form. Not async. */
  committed?(turn: Turn, messages: unknown[]): void
}

export type CapabilityClass = new (
  settings: never,
  before: readonly Capability[],
  load: Modules,
) => Capability

/** The agent as a command sees it: an AgentApp. */
export interface App<S extends CoreSettings = CoreSettings> {
  readonly load: Modules
  /** Read the environment and .env; return the settings and the findings. */
  readSettings(): [S, Finding[]]
  /** Return the findings about the model. */
  checkModel(settings: CoreSettings): Promise<Finding[]>
  /** Return the capabilities. */
  makeCapabilities(settings: S): Promise<Capability[]>
  /** Return the capabilities, for commands that run no turn; refuse errors in the settings. */
  readonly loadCapabilities: LoadCapabilities
}

/** Reads the settings, rejects invalid ones, and returns the capabilities. */
export type LoadCapabilities = () => Promise<readonly Capability[]>

/** An option of a command, which sets a variable; one without `takes` sets it to 1. */
export interface Option {
  readonly variable: string
  readonly takes?: string
  readonly does: string
}

/** A CLI command: `takes` and `does` appear in --help, `run` executes it. */
export interface Command<S extends CoreSettings = CoreSettings> {
  readonly takes: string
  readonly does: string
  readonly run: (args: string[], app: App<S>) => Promise<void>
}

/** Return the findings of all capabilities: those of `check`, or of `ping` over the network. */
export async function checkAll(
  capabilities: readonly Capability[],
  method: 'check' | 'ping' = 'check',
): Promise<Finding[]> {
  const findings: Finding[] = []
  for (const capability of capabilities) {
    try {
      const { turnTimeoutSeconds } = capability.settings
      const found = await within(turnTimeoutSeconds, async () => capability[method]?.())
      findings.push(...(found ?? []))
    } catch (error) {
      const what = `${capability.constructor.name}.${method} failed: ${describe(error)}.`
      findings.push(diagnostic('CAPABILITY', what))
    }
  }
  return findings
}

/** Return a model for requests on behalf of an actor; the first capability wraps it last. */
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

/** Run the work of a capability; throw TimeoutError when its time is up. */
export function within<T>(seconds: number, work: () => Promise<T>): Promise<T> {
  return withinTime(seconds, new AbortController().signal, work, () => new TimeoutError())
}
