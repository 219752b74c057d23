// What the turns of one process share: a model, sessions in memory, and no long-term memory.

import { AgentError, type Ask } from './contract.ts'
import { buildModel, checkModel, modelEndpoint } from './model.ts'
import { InProcess, Sessions } from './sessions.ts'
import type { Diagnostic, Settings } from './settings.ts'

/** The parts, and what the commands and the turns have to know of them. */
export class Parts {
  /** Whether every caller must name an actor. */
  readonly actorRequired = false
  /** Whether something of a committed turn is still to be written. */
  isWaiting = false
  readonly kept = 'Nothing was kept: sessions live in this process.'

  readonly settings: Settings
  readonly sessions: Sessions
  model: ReturnType<typeof buildModel>

  constructor(settings: Settings) {
    this.settings = settings
    this.model = buildModel(settings)
    this.sessions = new Sessions(settings, new InProcess(settings))
  }

  /** What is wrong with the environment and the files of these parts. */
  static async check(settings: Settings): Promise<Diagnostic[]> {
    return checkModel(settings)
  }

  /** What this process will contact, a line each. */
  async contacts(): Promise<string[]> {
    const model = this.settings.model
    const where = model === 'offline' ? 'nothing' : await modelEndpoint(this.settings)
    const shown = where.replace(/\/\/[^/]*@/, '//') // without a password that the address holds
    return [`Model: ${model}, contacts ${shown}`, 'Sessions: in this process']
  }

  /** More options for the agent of one turn. */
  agentOptions(_ask: Ask): object {
    return {}
  }

  /** Hear what a committed turn added. */
  record(_ask: Ask, _messages: unknown[]): void {}

  /** Write what waits to be written. */
  async close(): Promise<void> {}
}

/** Do the work of one turn, and throw at once when its time is over or the signal is aborted. */
export async function withinTime<T>(
  parts: Parts,
  signal: AbortSignal,
  work: (stop: AbortSignal) => Promise<T>,
): Promise<T> {
  const own = new AbortController()
  const stop = AbortSignal.any([signal, own.signal])
  const stopped = new Promise<never>((_, reject) => {
    stop.addEventListener('abort', () => reject(stop.reason), { once: true })
  })
  const seconds = parts.settings.turnTimeoutSeconds
  const timer = setTimeout(() => own.abort(new AgentError('turn_timeout')), seconds * 1000)
  try {
    return await Promise.race([work(stop), stopped])
  } finally {
    clearTimeout(timer)
    own.abort() // ends the model call, whatever ended the turn
  }
}
