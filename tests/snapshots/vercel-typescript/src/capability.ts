// What can plug into an agent, such as a session store or a page.

import type { RequestListener } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

import type { Turn } from './contract.ts'
import { errorsOf, type Finding } from './findings.ts'
import { logUnexpected } from './log.ts'
import type { Handler } from './routes.ts'
import type { Runtime } from './runtime.ts'
import type { SessionStore } from './session_store.ts'
import type { CoreSettings } from './settings.ts'
import type { NamedTool } from './turn.ts'

/** Handlers by method and path, as in `GET /orders/{id}`; `{id}` matches one segment. */
export type Routes = Record<string, Handler>

/** The framework's options for the agent of one turn. */
export interface Options {
  model: Runtime['model']
  tools: ReturnType<Runtime['tools']>
  [name: string]: unknown
}

/** Plugs into an agent; a method that is left out does nothing. */
export class Capability<S extends CoreSettings = CoreSettings> {
  readonly settings: S

  /** `before` were made before this one. Must not throw: read files in `check`. */
  constructor(settings: S, _before: readonly Capability[]) {
    this.settings = settings
  }

  /** Whether every caller must send an actor id. */
  actorRequired?(): boolean
  /** Whether data of a committed turn is still to be written. */
  isBusy?(): boolean
  /** What was kept of a session, for whoever leaves it; '' for nothing. */
  retentionNotice?(): string
  /** Return the findings in settings and files, without a network. */
  check?(): Finding[] | Promise<Finding[]>
  /** Call services for `check --connect`: `open` was not called; `close` will be. */
  ping?(): Promise<Finding[]>
  /** Connect. Throws AgentError; its detail is for the owner. */
  open?(): Promise<void>
  /** Write what is still to be written, and disconnect. */
  close?(): Promise<void>
  /** Return what is contacted, a line each, without passwords; `address` is the server's. */
  describe?(address: string): string[]
  /** Return where sessions live; the first one counts, and without one it is this process. */
  sessionStore?(): SessionStore | undefined
  /** Return routes that are called after the checks of Host, Origin and token. */
  routes?(): Routes
  /** Return routes that need no token. */
  publicRoutes?(): Routes
  /** Return the server's app in a middleware of yours. */
  wrap?(app: RequestListener): RequestListener
  /** Return tools for every turn. */
  tools?(): NamedTool[]
  /** Wrap a turn: call `run`, and return what it returns. Throw AgentError to refuse the turn. */
  around?<T>(turn: Turn, run: () => Promise<T>): Promise<T>
  /** Change the options of the turn's agent. Throw AgentError to refuse the turn. */
  prepare?(turn: Turn, options: Options): void
  /** Use the messages of a turn that was committed. */
  committed?(turn: Turn, messages: unknown[]): void
}

export type CapabilityClass = new (settings: never, before: readonly Capability[]) => Capability

/** Reads the settings, refuses errors in them, and returns the capabilities. */
export type LoadCapabilities = () => Promise<readonly Capability[]>

/** A CLI command: `takes` and `does` appear in --help, `run` executes it. */
export interface Command {
  readonly takes: string
  readonly does: string
  readonly run: (args: string[], load: LoadCapabilities) => Promise<void>
}

/** Return the capability of a class. Throws Error where there is none. @public */
export function find<T extends Capability>(
  kind: abstract new (...args: never[]) => T,
  capabilities: readonly Capability[],
): T {
  const found = capabilities.find((capability) => capability instanceof kind)
  if (!found) throw new Error(`there is no ${kind.name}`)
  return found as T
}

/** Return all findings; with `connect`, also `ping` capabilities, then close those. */
export async function checkAll(
  settings: CoreSettings,
  capabilities: readonly Capability[],
  connect = false,
): Promise<Finding[]> {
  const findings: Finding[] = []
  if (settings.model !== 'offline') {
    const { checkModel } = await import('./model.ts') // it loads the vendor's client
    findings.push(...(await checkModel(settings)))
  }
  for (const capability of capabilities) findings.push(...((await capability.check?.()) ?? []))
  if (!connect || errorsOf(findings).length > 0) return findings
  const called = capabilities.filter(({ ping }) => ping)
  try {
    for (const capability of called) findings.push(...((await capability.ping?.()) ?? []))
    return findings
  } finally {
    await closeAll(settings, called)
  }
}

/** Close capabilities in reverse order; one that fails or hangs stops no other. */
export async function closeAll(
  settings: CoreSettings,
  capabilities: readonly Capability[],
): Promise<void> {
  const milliseconds = (settings.shutdownGraceSeconds + 5) * 1000
  for (const capability of capabilities.toReversed()) {
    const done = new AbortController()
    const late = sleep(milliseconds, undefined, done).then(() => {
      throw new DOMException(`${capability.constructor.name}.close`, 'TimeoutError')
    })
    const closing = (async () => capability.close?.())()
    await Promise.race([closing, late]).catch(logUnexpected)
    done.abort()
    late.catch(() => {})
  }
}
