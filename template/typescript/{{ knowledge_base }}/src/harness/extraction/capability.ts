// Extraction of facts, as a capability.

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

const LONGEST = 40_000 // characters of an answer
const [MAX_TEXT_CHARS, MAX_TRANSCRIPT_CHARS] = [8_000, 200_000]
const REFUSED = /HTTP 4(00|13|22)\b/
const NOT_REACHED = /\b(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|UND_ERR_CONNECT_TIMEOUT)\b/

/** Turns what was said into facts, for the memories whose files say `extraction: "model"`. */
export class Extraction extends Capability<Settings> {
  readonly #before: readonly Capability[]
  readonly #longTerm: LongTermMemory
  /** The client of the model; offline there is none. */
  model: LanguageModel | undefined

  constructor(settings: Settings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    this.#before = before
    this.#longTerm = before.find((capability) => capability instanceof LongTermMemory)!
    this.#longTerm.extract = (actor, turns) => this.extract(actor, turns)
  }

  /** The model that finds facts. */
  get modelName(): string {
    const { model, extractionModel } = this.settings
    return model === 'offline' ? model : extractionModel || model
  }

  override check(): Finding[] {
    const { model, extractionModel: name } = this.settings
    if (!name || (model !== 'offline' && name !== model)) return []
    const what =
      model === 'offline'
        ? 'EXTRACTION_MODEL has no effect while MODEL is not set.'
        : 'EXTRACTION_MODEL is the same as MODEL: it can be left out.'
    return [diagnostic('SET-EXTRACTION_MODEL', what, 'warning')]
  }

  override ping(): Promise<Finding[]> {
    const { extractionModel: name } = this.settings
    return callModel(this.load, this.settings, 'EXTRACTION_MODEL', name)
  }

  override describe(): string[] {
    const names = this.#longTerm.writers.filter(({ extracts }) => extracts).map(({ id }) => id)
    if (names.length === 0) return []
    const { modelName: name } = this
    const how = name === 'offline' ? 'what users say, until MODEL is set' : `found by ${name}`
    return [`Facts for ${names.join(', ')}: ${how}`]
  }

  /**
   * Return the facts of an actor's turns, and what was added to the memory as it is.
   *
   * Turns whose texts of the user have the same metadata are read together. Throws MemoryRefused
   * if another call would fail, too, and MemoryUnavailable: a transient one if the model did no
   * work.
   */
  async extract(actor: string, turns: readonly Texts[]): Promise<Utterance[]> {
    const groups: { metadata: Metadata; said: Utterance[] }[] = []
    for (const texts of turns) {
      const metadata = texts.find(([role]) => role === 'USER')?.[2] ?? {}
      const last = groups.at(-1)
      if (last && isDeepStrictEqual(last.metadata, metadata)) last.said.push(...texts)
      else groups.push({ metadata, said: [...texts] })
    }
    const found: Utterance[] = []
    for (const { metadata, said } of groups) {
      const talk = said.filter(([, , , , isFact]) => !isFact)
      const facts = talk.length > 0 ? await this.#facts(actor, talk) : []
      found.push(...facts.map((fact): Utterance => ['USER', fact, metadata]))
      found.push(...said.filter(([, , , , isFact]) => isFact))
    }
    return found
  }

  async #facts(actor: string, talk: Texts): Promise<string[]> {
    const { policy } = this.#longTerm
    const found = await this.#open()
    if (!found) {
      return policy.offlineFacts(talk.flatMap(([role, text]) => (role === 'USER' ? [text] : [])))
    }
    const model = wrapModel(this.#before, found, actor)
    const { extractionTimeoutSeconds: seconds } = this.settings
    const late = `no facts within EXTRACTION_TIMEOUT_SECONDS=${seconds}`
    try {
      const answer = await withinTime(
        seconds,
        new AbortController().signal,
        (stop) => ask(model, policy.factsPrompt, transcriptOf(talk), LONGEST, stop),
        () => new MemoryUnavailable(late, { isTransient: false }),
      )
      if (!answer.isWhole) throw new MemoryRefused('the model did not finish the facts')
      const facts = policy.factsIn(answer.text).filter((fact) => !isBlank(fact))
      const tokens = `${answer.inputTokens} tokens in, ${answer.outputTokens} out`
      log('INFO', `found ${facts.length} facts in ${talk.length} texts (${tokens})`)
      return facts
    } catch (error) {
      if (error instanceof MemoryUnavailable) throw error
      const why = describe(error)
      const Failure = REFUSED.test(why) ? MemoryRefused : MemoryUnavailable
      const isTransient = isBusy(why) || NOT_REACHED.test(why)
      throw new Failure(`the model found no facts: ${why}`, { isTransient })
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

/** Texts as JSON strings in which nothing begins a line or closes the transcript. */
function transcriptOf(talk: Texts): string {
  const share = Math.floor(MAX_TRANSCRIPT_CHARS / talk.length)
  const most = Math.min(MAX_TEXT_CHARS, Math.max(100, share))
  const lines = talk.map(([role, text]) => {
    const who = role === 'USER' ? 'User' : 'Assistant'
    return `${who}: ${JSON.stringify(shorten(text, most))}`
  })
  const quoted = lines.join('\n').replace(/[<\x85\u2028\u2029]/g, (one) => {
    return `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`
  })
  return `<transcript>\n${quoted}\n</transcript>\nWrite the facts of this transcript.`
}

function shorten(text: string, most: number): string {
  const half = Math.floor(most / 2)
  return text.length <= most ? text : `${text.slice(0, half)} … ${text.slice(-half)}`
}
