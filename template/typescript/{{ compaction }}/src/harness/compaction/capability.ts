// The capability that summarizes the messages a full session drops.

import { createHash } from 'node:crypto'

import { LRUCache } from 'lru-cache'

import { type Answer, ask } from '../models/ask.ts'
import { Capability, wrapModel } from '../capability.ts'
import { isTooLong } from '../models/context_length.ts'
import { isBlank, type Turn } from '../contract.ts'
import { withinTime } from '../deadline.ts'
import { diagnostic, type Finding } from '../findings.ts'
import { describe, log } from '../log.ts'
import { callModel } from '../models/model_call.ts'
import type { LanguageModel } from '../echo_model.ts'
import type { Modules } from '../modules.ts'
import { serialize } from '../sessions/sessions.ts'
import type { CoreSettings, SettingsOf } from '../settings.ts'
import * as adapter from './adapter.ts'
import type { COMPACTION_SETTINGS } from './settings.ts'
import { INSTRUCTIONS, LONGEST, mark, offlineSummary, REPLY } from './summary.ts'
import { type Utterance, SIZES, transcript, unmark } from './summary.ts'

type Settings = CoreSettings & SettingsOf<typeof COMPACTION_SETTINGS>

const PAUSE = 600_000 // milliseconds after a failed summary without another attempt

/** The summary failed. The message gives the reason and quotes no content. */
class NoSummaryError extends Error {}

/** The last summary failed recently, so this turn made no attempt. */
class PausedError extends NoSummaryError {
  override message = 'the last summary failed less than 10 minutes ago'
}

/** Summarizes the messages that a full session drops. If it fails, only drops them. */
export class Compaction extends Capability<Settings> {
  readonly #before: readonly Capability[]
  /** By digest: a retried turn reuses the summary that it already paid for. */
  readonly #summaries = new LRUCache<string, string>({ max: 64 })
  /** The times of failed summaries by session, as returned by `now`. */
  readonly #failures = new LRUCache<string, number>({ max: 1024 })
  /** The clock, in milliseconds. */
  now = (): number => performance.now()
  /** The client of the model; the offline summary needs none. */
  model: LanguageModel | undefined

  constructor(settings: Settings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    this.#before = before
  }

  /** The name of the summary model. */
  get modelName(): string {
    const { model, compactionModel } = this.settings
    return model === 'offline' ? model : compactionModel || model
  }

  override check(): Finding[] {
    const { model, compactionModel: name } = this.settings
    const { compactionTimeoutSeconds: seconds, turnTimeoutSeconds: limit } = this.settings
    const findings: Finding[] = []
    if (name && model === 'offline') {
      const message = 'COMPACTION_MODEL has no effect while MODEL is not set.'
      findings.push(diagnostic('SET-COMPACTION_MODEL', message, 'warning'))
    } else if (name && name === model) {
      const message = 'COMPACTION_MODEL is the same as MODEL. Remove it.'
      findings.push(diagnostic('SET-COMPACTION_MODEL', message, 'warning'))
    }
    if (seconds >= limit) {
      const message =
        `COMPACTION_TIMEOUT_SECONDS is ${seconds}, not below TURN_TIMEOUT_SECONDS=${limit}: ` +
        'a turn with a summary can take more than twice as long.'
      findings.push(diagnostic('SET-COMPACTION_TIMEOUT_SECONDS', message, 'warning'))
    }
    return findings
  }

  override ping(): Promise<Finding[]> {
    const { compactionModel: name } = this.settings
    return callModel(this.load, this.settings, 'COMPACTION_MODEL', name)
  }

  override describe(): string[] {
    if (this.modelName === 'offline') return ['Compaction: summaries quote the user']
    const { compactionTimeoutSeconds: seconds } = this.settings
    return [`Compaction: ${this.modelName} summarizes, within ${seconds} s`]
  }

  /** Return the summary as messages; if it fails, keep the earlier summary. */
  override async replaceDropped(
    turn: Turn,
    dropped: unknown[],
    at: number,
    turns: number,
  ): Promise<unknown[]> {
    if (dropped.length === at) return dropped // only the earlier summary
    const { sessionId, number, signal } = turn
    const digest = createHash('sha256')
      .update(serialize([sessionId, turns, dropped]))
      .digest('hex')
    let summary = this.#summaries.get(digest)
    if (summary === undefined) {
      const startedAt = performance.now()
      const count = dropped.length - at
      try {
        this.#checkPause(sessionId)
        const earlier = dropped.slice(0, at)
        const [text, tokens] = await this.#summarize(turn, earlier, dropped.slice(at))
        const milliseconds = Math.round(performance.now() - startedAt)
        const result = `summarized ${count} messages in ${milliseconds} ms${tokens}`
        log('INFO', `session ${sessionId}: turn ${number} ${result}`)
        summary = text
        this.#summaries.set(digest, text)
      } catch (error) {
        signal.throwIfAborted()
        const isKnown = error instanceof NoSummaryError
        const reason = isKnown ? error.message : `the model failed: ${describe(error)}`
        if (!(error instanceof PausedError)) this.#failures.set(sessionId, this.now())
        const result = `continues without a summary of ${count} messages: ${reason}`
        log('WARNING', `session ${sessionId}: turn ${number} ${result}`)
        return dropped.slice(0, at)
      }
    }
    return adapter.write([
      ['user', mark(summary, turns)],
      ['assistant', REPLY],
    ])
  }

  /** Throw PausedError if the last summary of a session failed recently. */
  #checkPause(sessionId: string): void {
    const failedAt = this.#failures.get(sessionId)
    if (failedAt !== undefined && this.now() - failedAt < PAUSE) throw new PausedError()
  }

  /** End the pause: the next summary covers other messages. */
  override committed({ sessionId }: Turn): void {
    this.#failures.delete(sessionId)
  }

  /** Return a summary, and its token counts as text. */
  async #summarize(
    turn: Turn,
    before: unknown[],
    messages: unknown[],
  ): Promise<[text: string, tokens: string]> {
    const [utterance] = adapter.read(before)
    const earlier = unmark(typeof utterance?.[1] === 'string' ? utterance[1] : '')
    const utterances = [...adapter.read(messages)]
    const client = await this.#open()
    if (!client) return [offlineSummary(earlier, utterances), '']
    const model = wrapModel(this.#before, client, turn.actor, turn)
    const { compactionTimeoutSeconds: seconds } = this.settings
    const reason = `it took longer than COMPACTION_TIMEOUT_SECONDS=${seconds}`
    const answer = await withinTime(
      seconds,
      turn.signal,
      (stop) => askShorter(model, earlier, utterances, stop),
      () => new NoSummaryError(reason),
    )
    const { inputTokens, outputTokens, isWhole } = answer
    const text = answer.text.toWellFormed().trim()
    if (text.length > LONGEST) {
      throw new NoSummaryError(`it is longer than ${LONGEST} characters`)
    }
    if (!isWhole) throw new NoSummaryError('the model did not finish it')
    if (isBlank(text)) throw new NoSummaryError('it is blank')
    const tokens = ` (${inputTokens} tokens in, ${outputTokens} out)`
    return [text, inputTokens || outputTokens ? tokens : '']
  }

  async #open(): Promise<LanguageModel | undefined> {
    if (!this.model && this.modelName !== 'offline') {
      const { buildModel } = await this.load.model()
      // Requests for summaries share no prefix, so prompt caching would only add costs.
      this.model = buildModel({ ...this.settings, model: this.modelName, promptCache: 0 })
    }
    return this.model
  }
}

/** Return the answer to a transcript; shorten the transcript if it is too long for the model. */
async function askShorter(
  model: LanguageModel,
  earlier: string,
  utterances: Utterance[],
  signal: AbortSignal,
): Promise<Answer> {
  const askWith = (size: number) => {
    return ask(model, INSTRUCTIONS, transcript(earlier, utterances, size), LONGEST, signal)
  }
  for (const size of SIZES.slice(0, -1)) {
    try {
      return await askWith(size)
    } catch (error) {
      if (!isTooLong(error)) throw error
    }
  }
  return askWith(SIZES.at(-1) ?? 0)
}
