// The capability that extracts facts from turns.

import { isDeepStrictEqual } from 'node:util'

import { ask } from '../models/ask.ts'
import { Capability, wrapModel } from '../capability.ts'
import { isBlank, isBusy } from '../contract.ts'
import { withinTime } from '../deadline.ts'
import { diagnostic, type Finding } from '../findings.ts'
import { describe, log } from '../log.ts'
import { MemoryRefused, MemoryUnavailable } from '../memory/base.ts'
import type { Metadata, Utterance } from '../memory/base.ts'
import { LongTermMemory } from '../memory/long_term.ts'
import { callModel } from '../models/model_call.ts'
import type { LanguageModel } from '../echo_model.ts'
import type { Modules } from '../modules.ts'
import type { CoreSettings, SettingsOf } from '../settings.ts'
import type { EXTRACTION_SETTINGS } from './settings.ts'

type Settings = CoreSettings & SettingsOf<typeof EXTRACTION_SETTINGS>
type Texts = readonly Utterance[]

const MAX_ANSWER_CHARS = 40_000
const MAX_TEXT_CHARS = 8_000
const MAX_TRANSCRIPT_CHARS = 200_000
const REFUSED = /HTTP 4(00|13|22)\b/
const NOT_REACHED = /\b(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|UND_ERR_CONNECT_TIMEOUT)\b/

/** Extracts facts from turns, for collections with `extraction: "model"`. */
export class Extraction extends Capability<Settings> {
  readonly #before: readonly Capability[]
  readonly #longTerm: LongTermMemory
  /** The client of the model; undefined with the echo model. */
  model: LanguageModel | undefined

  constructor(settings: Settings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    this.#before = before
    this.#longTerm = before.find((capability) => capability instanceof LongTermMemory)!
    this.#longTerm.extract = (actor, turns) => this.extract(actor, turns)
  }

  /** The name of the model that extracts facts. */
  get modelName(): string {
    const { model, extractionModel } = this.settings
    return model === 'offline' ? model : extractionModel || model
  }

  override check(): Finding[] {
    const { model, extractionModel: name } = this.settings
    if (!name || (model !== 'offline' && name !== model)) return []
    const message =
      model === 'offline'
        ? 'EXTRACTION_MODEL has no effect without MODEL: set MODEL too.'
        : 'EXTRACTION_MODEL is the same as MODEL: remove it.'
    return [diagnostic('SET-EXTRACTION_MODEL', message, 'warning')]
  }

  override ping(): Promise<Finding[]> {
    const { extractionModel: name } = this.settings
    return callModel(this.load, this.settings, 'EXTRACTION_MODEL', name)
  }

  override describe(): string[] {
    const names = this.#longTerm.writers.filter(({ extracts }) => extracts).map(({ id }) => id)
    if (names.length === 0) return []
    const { modelName: name } = this
    const source = name === 'offline' ? 'user messages, until MODEL is set' : `extracted by ${name}`
    return [`Facts for ${names.join(', ')}: ${source}`]
  }

  /**
   * Return the facts of an actor's turns, and the texts that were added unchanged.
   *
   * Extracts facts from adjacent turns together if their user texts have equal metadata. Throws
   * MemoryRefused if a retry would fail too, else MemoryUnavailable, which is transient if the
   * model was not billed.
   */
  async extract(actor: string, turns: readonly Texts[]): Promise<Utterance[]> {
    const groups: { metadata: Metadata; utterances: Utterance[] }[] = []
    for (const texts of turns) {
      const metadata = texts.find(([role]) => role === 'USER')?.[2] ?? {}
      const last = groups.at(-1)
      if (last && isDeepStrictEqual(last.metadata, metadata)) last.utterances.push(...texts)
      else groups.push({ metadata, utterances: [...texts] })
    }
    const result: Utterance[] = []
    for (const { metadata, utterances } of groups) {
      const dialog = utterances.filter(([, , , , isFact]) => !isFact)
      const facts = dialog.length > 0 ? await this.#facts(actor, dialog) : []
      result.push(...facts.map((fact): Utterance => ['USER', fact, metadata]))
      result.push(...utterances.filter(([, , , , isFact]) => isFact))
    }
    return result
  }

  async #facts(actor: string, dialog: Texts): Promise<string[]> {
    const { policy } = this.#longTerm
    const client = await this.#open()
    if (!client) {
      return policy.offlineFacts(dialog.flatMap(([role, text]) => (role === 'USER' ? [text] : [])))
    }
    const model = wrapModel(this.#before, client, actor)
    const { extractionTimeoutSeconds: seconds } = this.settings
    const problem = `no facts within EXTRACTION_TIMEOUT_SECONDS=${seconds}`
    try {
      const answer = await withinTime(
        seconds,
        new AbortController().signal,
        (stop) => ask(model, policy.factsPrompt, transcriptOf(dialog), MAX_ANSWER_CHARS, stop),
        () => new MemoryUnavailable(problem, { isTransient: false }),
      )
      if (!answer.isWhole) throw new MemoryRefused("the model's list of facts is incomplete")
      const facts = policy.factsIn(answer.text).filter((fact) => !isBlank(fact))
      const tokens = `${answer.inputTokens} tokens in, ${answer.outputTokens} out`
      log('INFO', `extracted ${facts.length} facts from ${dialog.length} texts (${tokens})`)
      return facts
    } catch (error) {
      if (error instanceof MemoryUnavailable) throw error
      const reason = describe(error)
      const Failure = REFUSED.test(reason) ? MemoryRefused : MemoryUnavailable
      const isTransient = isBusy(reason) || NOT_REACHED.test(reason)
      throw new Failure(`the model extracted no facts: ${reason}`, { isTransient })
    }
  }

  async #open(): Promise<LanguageModel | undefined> {
    if (!this.model && this.modelName !== 'offline') {
      const { buildModel } = await this.load.model()
      this.model = buildModel({ ...this.settings, model: this.modelName, promptCache: 0 })
    }
    return this.model
  }
}

/** Return the transcript of texts, as JSON strings that cannot end a line or the transcript. */
function transcriptOf(dialog: Texts): string {
  const share = Math.floor(MAX_TRANSCRIPT_CHARS / dialog.length)
  const limit = Math.min(MAX_TEXT_CHARS, Math.max(100, share))
  const lines = dialog.map(([role, text]) => {
    const speaker = role === 'USER' ? 'User' : 'Assistant'
    return `${speaker}: ${JSON.stringify(shorten(text, limit))}`
  })
  const quoted = lines.join('\n').replace(/[<\x85\u2028\u2029]/g, (character) => {
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
  })
  return `<transcript>\n${quoted}\n</transcript>\nWrite the facts of this transcript.`
}

function shorten(text: string, limit: number): string {
  const half = Math.floor(limit / 2)
  return text.length <= limit ? text : `${text.slice(0, half)} … ${text.slice(-half)}`
}
