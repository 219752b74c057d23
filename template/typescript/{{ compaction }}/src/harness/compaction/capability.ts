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

const PAUSE = 600_000 // milliseconds without a new try after a summary that failed

/** The summary failed. The message gives the reason and quotes no content. */
class NoSummaryError extends Error {}

/** The last summary failed recently, so this turn did not try again. */
class PausedError extends NoSummaryError {
  override message = 'the last summary failed less than 10 minutes ago'
}

/** Summarizes the messages that a full session drops. If that fails, drops them anyway. */
export class Compaction extends Capability<Settings> {
  readonly #before: readonly Capability[]
  /** By digest: a retried turn reuses the summary that it already paid for. */
  readonly #summaries = new LRUCache<string, string>({ max: 64 })
  /** When the last summary of a session failed, in milliseconds of `now`. */
  readonly #failures = new LRUCache<string, number>({ max: 1024 })
  /** The clock, in milliseconds. */
  now = (): number => performance.now()
  /** The client of the model; the offline summary needs none. */
  model: LanguageModel | undefined

  constructor(settings: Settings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    this.#before = before
  }

  /** The model that summarizes. */
  get modelName(): string {
    const { model, compactionModel } = this.settings
    return model === 'offline' ? model : compactionModel || model
  }

  override check(): Finding[] {
    const { model, compactionModel: name } = this.settings
    const { compactionTimeoutSeconds: seconds, turnTimeoutSeconds: limit } = this.settings
    const findings: Finding[] = []
    if (name && model === 'offline') {
      const what = 'COMPACTION_MODEL has no effect while MODEL is not set.'
      findings.push(diagnostic('SET-COMPACTION_MODEL', what, 'warning'))
    } else if (name && name === model) {
      const what = 'COMPACTION_MODEL is the same as MODEL. Remove it.'
      findings.push(diagnostic('SET-COMPACTION_MODEL', what, 'warning'))
    }
    if (seconds >= limit) {
      const what =
        `COMPACTION_TIMEOUT_SECONDS is ${seconds}, not below TURN_TIMEOUT_SECONDS=${limit}: ` +
        'a turn with a summary can take more than twice as long.'
      findings.push(diagnostic('SET-COMPACTION_TIMEOUT_SECONDS', what, 'warning'))
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
    let known = this.#summaries.get(digest)
    if (known === undefined) {
      const began = performance.now()
      const count = dropped.length - at
      try {
        this.#checkPause(sessionId)
        const asked = await this.#summarize(turn, dropped.slice(0, at), dropped.slice(at))
        const [text, tokens] = asked
        const milliseconds = Math.round(performance.now() - began)
        const what = `summarized ${count} messages in ${milliseconds} ms${tokens}`
        log('INFO', `session ${sessionId}: turn ${number} ${what}`)
        known = text
        this.#summaries.set(digest, text)
      } catch (error) {
        signal.throwIfAborted()
        const isKnown = error instanceof NoSummaryError
        const why = isKnown ? error.message : `the model failed: ${describe(error)}`
        if (!(error instanceof PausedError)) this.#failures.set(sessionId, this.now())
        const what = `goes on without a summary of ${count} messages: ${why}`
        log('WARNING', `session ${sessionId}: turn ${number} ${what}`)
        return dropped.slice(0, at)
      }
    }
    return adapter.write([
      ['user', mark(known, turns)],
      ['assistant', REPLY],
    ])
  }

  /** Throw PausedError if the last summary of a session failed a short time ago. */
  #checkPause(sessionId: string): void {
    const failed = this.#failures.get(sessionId)
    if (failed !== undefined && this.now() - failed < PAUSE) throw new PausedError()
  }

  /** End the pause: the next summary is of other messages. */
  override committed({ sessionId }: Turn): void {
    this.#failures.delete(sessionId)
  }

  /** Return a summary and a text with its token counts. */
  async #summarize(
    turn: Turn,
    before: unknown[],
    messages: unknown[],
  ): Promise<[text: string, tokens: string]> {
    const [first] = adapter.read(before)
    const earlier = unmark(typeof first?.[1] === 'string' ? first[1] : '')
    const utterances = [...adapter.read(messages)]
    const found = await this.#open()
    if (!found) return [offlineSummary(earlier, utterances), '']
    const model = wrapModel(this.#before, found, turn.actor, turn)
    const { compactionTimeoutSeconds: seconds } = this.settings
    const late = `it took longer than COMPACTION_TIMEOUT_SECONDS=${seconds}`
    const answer = await withinTime(
      seconds,
      turn.signal,
      (stop) => askShorter(model, earlier, utterances, stop),
      () => new NoSummaryError(late),
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
      // Requests for summaries share no prefix, so caching them would only cost.
      this.model = buildModel({ ...this.settings, model: this.modelName, promptCache: 0 })
    }
    return this.model
  }
}

/** Return the answer to a transcript, a shorter one if the model cannot read it all. */
async function askShorter(
  model: LanguageModel,
  earlier: string,
  utterances: Utterance[],
  signal: AbortSignal,
): Promise<Answer> {
  const about = (size: number) => {
    return ask(model, INSTRUCTIONS, transcript(earlier, utterances, size), LONGEST, signal)
  }
  for (const size of SIZES.slice(0, -1)) {
    try {
      return await about(size)
    } catch (error) {
      if (!isTooLong(error)) throw error
    }
  }
  return about(SIZES.at(-1) ?? 0)
}
