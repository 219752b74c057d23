// The running agent: its model, sessions, turns and capabilities.

import { types } from 'node:util'

import { type App, type Capability, checkAll, within, wrapModel } from './capability.ts'
import { AgentError, type Change, type Chunk, checkPrompt } from './contract.ts'
import { FileUrl, RUNNING, Turn } from './contract.ts'
import type { TurnRequest, TurnResult } from './contract.ts'
import { abortOf } from './deadline.ts'
import { checkUrls, fetchFiles } from './file_urls.ts'
import { checkFiles, FORMATS } from './files.ts'
import { CommandError, refuseErrors } from './findings.ts'
import { announce, asAgentError, log, logging, logTurn, logUnexpected } from './log.ts'
import { type LanguageModel, OfflineModel } from './echo_model.ts'
import { FILE_TYPES } from './models/file_types.ts'
import { type AgentModule, checkAgent, checkFinalTools, checkRoutes } from './modules.ts'
import type { Modules, Options, Read, Runtime as RunningAgent } from './modules.ts'
import type { SpawnOptions, StartOptions } from './modules.ts'
import { Turns } from './sessions/running_turns.ts'
import { InProcess } from './sessions/session_store.ts'
import { Sessions, Stage } from './sessions/sessions.ts'
import { type CoreSettings, withoutPassword } from './settings.ts'
import { refusedTool } from './tool_schemas.ts'
import { describeTools, mergeTools, mistakesIn, UNSUPPORTED_OPTIONS, type Tools } from './tools.ts'

const ENDED_SECONDS = 5 // time limit of a capability's `ended`
const CLOSE_LAST_SECONDS = 5 // time limit of `close` if `closesLast`

/** The model, sessions, turns and capabilities of a process. */
export class Runtime implements RunningAgent {
  readonly settings: CoreSettings
  readonly agent: AgentModule
  readonly load: Modules
  readonly capabilities: readonly Capability[]
  readonly sessions: Sessions
  readonly turns: Turns
  model: LanguageModel = new OfflineModel()
  fileTypes: readonly string[] = Object.keys(FORMATS)
  readonly #opened: Capability[] = []
  #loading: ReturnType<typeof loadTurn> | undefined

  /** Call `checkAll` first: with invalid files, the constructor throws arbitrary errors. */
  constructor(
    settings: CoreSettings,
    agent: AgentModule,
    load: Modules,
    capabilities: readonly Capability[] = [],
  ) {
    for (const { constructor, prepare, committed } of capabilities) {
      const method = [prepare, committed].find(types.isAsyncFunction)
      const name = `${constructor.name}.${method?.name}`
      if (method) throw new CommandError(`${name} must not be async: remove \`async\`.`)
    }
    const [store] = capabilities.flatMap((capability) => capability.sessionStore?.() ?? [])
    this.settings = settings
    this.agent = agent
    this.load = load
    this.capabilities = capabilities
    this.turns = new Turns(settings.maxTurns)
    this.sessions = new Sessions(settings, store ?? new InProcess(settings), capabilities)
    this.spawn = this.spawn.bind(this) // a handler may destructure the runtime
  }

  /** Whether every caller must send an actor id. */
  get actorRequired(): boolean {
    return this.capabilities.some((capability) => capability.actorRequired?.())
  }

  /** Whether committed data is waiting to be written. */
  get isBusy(): boolean {
    return this.capabilities.some((capability) => capability.isBusy?.())
  }

  /** Sentences about the saved data of a session, for `chat`. */
  get retentionNotice(): string {
    const notices = this.capabilities.map((capability) => capability.retentionNotice?.())
    return [this.sessions.store.retentionNotice, ...notices].filter(Boolean).join(' ')
  }

  /** Return the request that a capability parses from a body. */
  readRequest(body: object, sessionId: string): TurnRequest | undefined {
    return this.capabilities.flatMap((capability) => capability.read?.(body, sessionId) ?? [])[0]
  }

  /** Ask the user of `chat` for approvals; return the request that resumes the turn. */
  async askApproval(
    result: TurnResult,
    request: TurnRequest,
    read: Read,
  ): Promise<TurnRequest | undefined> {
    for (const capability of this.capabilities) {
      const next = await capability.ask?.(result, request, read)
      if (next) return next
    }
    return undefined
  }

  /** Return the output of the session's running turn, if a capability can read it. */
  async follow(
    sessionId: string,
    actor: string | null,
    signal: AbortSignal,
  ): Promise<AsyncIterable<Chunk> | undefined> {
    for (const capability of this.capabilities) {
      const chunks = await capability.follow?.(sessionId, actor, signal)
      if (chunks) return chunks
    }
    return undefined
  }

  /** Return the tools of every turn; in a name conflict, the agent's own tool wins. */
  tools(): Tools {
    const tools = this.capabilities.flatMap((capability) => capability.tools?.() ?? [])
    return mergeTools(this.agent.TOOLS, tools)
  }

  /** The names of the tools of every turn. */
  get toolNames(): string[] {
    return describeTools(this.tools()).map(([name]) => name)
  }

  /** Run a turn without a client. */
  spawn(request: TurnRequest, { emit, signal }: SpawnOptions = {}): Promise<TurnResult> {
    const emitFailure = new AbortController()
    const send = async (chunk: Chunk) => {
      try {
        await emit?.(chunk)
      } catch (error) {
        emitFailure.abort(asAgentError(error))
        throw emitFailure.signal.reason
      }
    }
    const stop = AbortSignal.any([emitFailure.signal, ...(signal ? [signal] : [])])
    const turn = new Turn(request, send)
    const opening = async () => {
      if (request.hasPrompt) checkPrompt(request.prompt, this.settings.maxPromptChars)
      if (this.actorRequired && request.actor === null) throw new AgentError('actor_required')
    }
    const running = this.start(turn, { opening, signal: stop }).catch((error) => {
      if (turn.outcome === 'running') {
        turn.fail(error, stop) // rejected before it started
        if (logging.hasTurns) logTurn(turn, this.settings.model)
      }
      throw error === signal?.reason ? error : asAgentError(error)
    })
    running.catch(() => {}) // the log has the error if nobody awaits the turn
    return running
  }

  /** Run `opening`, such as checks of the request, and then the turn. */
  start(turn: Turn, { signal, opening }: StartOptions = {}): Promise<TurnResult> {
    const stop = new AbortController()
    const cancel = () => stop.abort(signal?.reason)
    signal?.addEventListener('abort', cancel)
    const work = async () => {
      checkFiles(turn.request.files, this.fileTypes, this.settings)
      checkUrls(turn.request.files, this.settings)
      await opening?.()
      if (signal?.aborted) cancel()
      return this.#run(turn, stop.signal)
    }
    return this.turns.start(stop, work).finally(() => {
      signal?.removeEventListener('abort', cancel)
    })
  }

  /** Run a turn and log a line at its end. */
  async #run(turn: Turn, signal: AbortSignal): Promise<TurnResult> {
    const start = performance.now()
    try {
      return await this.#around(turn, signal, () => this.#takeTurn(turn, signal))
    } finally {
      turn.milliseconds = Math.round(performance.now() - start)
      if (logging.hasTurns) logTurn(turn, this.settings.model)
      for (const capability of this.capabilities.filter(({ ended }) => ended)) {
        const ending = within(ENDED_SECONDS, async () => capability.ended?.(turn))
        await ending.catch(logUnexpected)
      }
    }
  }

  /**
   * Run a turn as a transaction: stage a copy of the session, answer, commit.
   *
   * Only the commit changes the session. A turn that fails, is cancelled, times out or ends without
   * a complete reply leaves the session unchanged. Throws AgentError, or the signal's abort reason.
   */
  async #takeTurn(turn: Turn, signal: AbortSignal): Promise<TurnResult> {
    this.#loading ??= loadTurn().catch((error) => {
      this.#loading = undefined // the next turn tries again
      throw error
    })
    const answerTurn = await this.#loading
    const { actor, sessionId } = turn
    return this.sessions.open(sessionId, actor, signal, async (session) => {
      turn.signal = signal
      const stage = await session.begin(turn)
      if (!(stage instanceof Stage)) {
        if (turn.reply) await turn.emit(turn.reply) // a waiting turn may have no text
        return { ...stage, output: repeatedOutput(turn) }
      }
      const start = performance.now()
      await this.#fetchFiles(stage)
      const seconds = this.settings.turnTimeoutSeconds - (performance.now() - start) / 1000
      const { snapshot, newMessages } = await answerTurn(this, stage, seconds)
      return stage.commit(snapshot, () => this.committed(turn, newMessages))
    })
  }

  /** Fetch the files of the turn that the request names by URL. Throws AgentError. */
  async #fetchFiles(stage: Stage): Promise<void> {
    const { turn } = stage
    const { files } = turn.request
    if (!files.some((file) => file instanceof FileUrl)) return
    const check = (bytes: number) => stage.checkSize(bytes)
    const fetched = await fetchFiles(files, this.settings, turn.signal, check)
    checkFiles(fetched, this.fileTypes, this.settings)
    turn.request = turn.request.of({ files: fetched })
  }

  /** Make a turn current and run the `around` methods of all capabilities. */
  #around(turn: Turn, signal: AbortSignal, run: () => Promise<TurnResult>): Promise<TurnResult> {
    const fail = async (error: unknown): Promise<never> => {
      turn.fail(error, signal)
      this.#logRefusedTool(error)
      throw error
    }
    const settle = async () => {
      try {
        const result = await run()
        turn.outcome = result.outcome
        return result
      } catch (error) {
        return fail(error)
      }
    }
    const inside = (inner: typeof run, capability: Capability) => async () => {
      let running: Promise<TurnResult> | undefined
      const once = () => {
        running ??= inner()
        running.catch(() => {}) // nothing else may await it
        return running
      }
      try {
        signal.throwIfAborted()
        await Promise.race([capability.around?.(turn, once), abortOf(signal)])
        const detail = `${capability.constructor.name}.around did not call run`
        running ??= fail(new AgentError('internal_error', '', detail))
      } catch (error) {
        running ??= fail(error)
        const failure = await running.catch((failure) => failure)
        if (error !== failure && error !== signal.reason) logUnexpected(error)
      }
      return running
    }
    const layers = this.capabilities.filter(({ around }) => around)
    const runLayers = layers.reduceRight(inside, settle)
    return RUNNING.run(turn, runLayers)
  }

  /** Log the name of the tool that the provider rejected. */
  #logRefusedTool(error: unknown): void {
    if (!(error instanceof AgentError) || error.type !== 'model_failed') return
    const name = refusedTool(error, this.toolNames)
    if (name) log('WARNING', `the provider rejects tool ${name}: run \`check\``)
  }

  /** Return the options of the turn's agent, such as model and tools. Throws AgentError. */
  prepare(turn: Turn): Options {
    const model = wrapModel(this.capabilities, this.model, turn.actor, turn)
    const options: Options = { model, tools: this.tools() }
    for (const capability of this.capabilities) {
      const result: unknown = capability.prepare?.(turn, options)
      Promise.resolve(result).catch(logUnexpected) // the turn does not wait
    }
    for (const [name, advice] of Object.entries(UNSUPPORTED_OPTIONS)) {
      const detail = `\`prepare\` cannot set the option ${name}: ${advice}.`
      if (name in options) throw new AgentError('internal_error', '', detail)
    }
    return options
  }

  /** Call `beforeChange` of all capabilities. Throws AgentError. */
  async beforeChange(change: Change): Promise<void> {
    for (const capability of this.capabilities) await capability.beforeChange?.(change)
  }

  /** Pass the messages of a committed turn to all capabilities. */
  committed(turn: Turn, messages: unknown[]): void {
    for (const capability of this.capabilities) {
      const use = async () => capability.committed?.(turn, messages)
      use().catch(logUnexpected) // the turn is committed
    }
  }

  /** Return lines about the model, the sessions and the capabilities, without passwords. */
  async describe(address: string): Promise<string[]> {
    const { model } = this.settings
    let endpoint = 'nothing'
    if (model !== 'offline') {
      const { modelEndpoint } = await this.load.model()
      endpoint = withoutPassword(await modelEndpoint(this.settings))
    }
    const sessions = `Sessions: ${this.sessions.store.description}`
    const contacts = this.capabilities.map((capability) => capability.describe?.(address) ?? [])
    return [`Model: ${model}, contacts ${endpoint}`, sessions, ...contacts.flat()]
  }

  /**
   * Create the model and open all capabilities.
   *
   * An AgentError becomes a CommandError with its detail.
   */
  async open(): Promise<void> {
    try {
      if (this.settings.model !== 'offline') {
        const { buildModel, FILE_TYPES: fileTypes = FILE_TYPES } = await this.load.model()
        this.model = buildModel(this.settings)
        this.fileTypes = fileTypes
      }
      for (const capability of this.capabilities) {
        await capability.open?.(this)
        this.#opened.push(capability)
      }
      if (this.agent.FINAL_TOOLS) refuseErrors(checkFinalTools(this.agent, this.toolNames))
    } catch (error) {
      await this.close()
      throw error instanceof AgentError ? new CommandError(error.detail || error.message) : error
    }
  }

  /** Close all opened capabilities. */
  async close(): Promise<void> {
    const opened = this.#opened.splice(0)
    const last = opened.filter(({ closesLast }) => closesLast)
    const others = opened.filter(({ closesLast }) => !closesLast)
    const seconds = this.settings.shutdownGraceSeconds + 2
    const close = (capability: Capability, seconds: number) => {
      return within(seconds, async () => capability.close?.()).catch(logUnexpected)
    }
    await Promise.all(others.map((capability) => close(capability, seconds)))
    await Promise.all(last.map((capability) => close(capability, CLOSE_LAST_SECONDS)))
  }
}

/** Load the framework, which commands without turns do not need. */
async function loadTurn() {
  const { answerTurn } = await import('./turn.ts')
  return answerTurn
}

/** Return the output value of a repeated turn: its reply is JSON. */
function repeatedOutput({ reply, request }: Turn): unknown {
  try {
    return request.output?.parse(JSON.parse(reply))
  } catch {
    return undefined // the first request had another schema or none
  }
}

/** Return the opened runtime. Throws CommandError if `check` finds an error. */
export async function startRuntime(app: App): Promise<Runtime> {
  const [settings, findings] = app.readSettings()
  logging.isJson = logging.isVerbose && settings.logFormat === 'json' // not in a terminal
  const agent = await app.load.agent()
  const capabilities = await app.makeCapabilities(settings)
  findings.push(...checkAgent(agent, mistakesIn))
  findings.push(...checkRoutes(await app.load.routes()))
  findings.push(...(await app.checkModel(settings)))
  findings.push(...(await checkAll(capabilities)))
  refuseErrors(findings)
  if (settings.model === 'offline') {
    announce('MODEL is not set: the echo model answers. See README.md to choose a model.')
  }
  const runtime = new Runtime(settings, agent, app.load, capabilities)
  await runtime.open()
  return runtime
}
