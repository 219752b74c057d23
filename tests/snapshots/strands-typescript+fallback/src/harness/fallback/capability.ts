// A second model, as a capability.

import { Capability, type Options, wrapModel } from '../capability.ts'
import type { Turn } from '../contract.ts'
import { diagnostic, type Finding } from '../findings.ts'
import { callModel } from '../models/model_call.ts'
import type { LanguageModel } from '../echo_model.ts'
import type { Modules } from '../modules.ts'
import type { CoreSettings, SettingsOf } from '../settings.ts'
import * as adapter from './adapter.ts'
import { Second } from './second.ts'
import type { FALLBACK_SETTINGS } from './settings.ts'

type Settings = CoreSettings & SettingsOf<typeof FALLBACK_SETTINGS>

/** Lets MODEL_FALLBACK answer a call that MODEL fails before its first content. */
export class Fallback extends Capability<Settings> {
  /** The second model; it is made when it is needed. */
  model: Promise<LanguageModel> | undefined
  readonly #before: readonly Capability[]

  constructor(settings: Settings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    this.#before = before
  }

  /** Return a finding unless there are two models. */
  override check(): Finding[] {
    const { model: first, modelFallback: second } = this.settings
    if (!second) {
      const hint = 'MODEL_FALLBACK is not set: no other model answers when MODEL fails.'
      return [diagnostic('SET-MODEL_FALLBACK', hint, 'warning')]
    }
    if (first === 'offline') {
      const hint = 'MODEL_FALLBACK is set, and MODEL is not: set both.'
      return [diagnostic('SET-MODEL_FALLBACK', hint)]
    }
    if (first === second) {
      const hint = 'MODEL_FALLBACK is the same model as MODEL: name another one.'
      return [diagnostic('SET-MODEL_FALLBACK', hint)]
    }
    const { fallbackSeconds: seconds, turnTimeoutSeconds: most } = this.settings
    const hint =
      `FALLBACK_SECONDS is ${seconds}, not below TURN_TIMEOUT_SECONDS=${most}: ` +
      'a turn in which MODEL hangs ends before the other model is asked.'
    return seconds < most ? [] : [diagnostic('SET-FALLBACK_SECONDS', hint, 'warning')]
  }

  /** Call the second model. */
  override ping(): Promise<Finding[]> {
    const { modelFallback: name } = this.settings
    return callModel(this.load, this.settings, 'MODEL_FALLBACK', name)
  }

  /** Return which model answers when the first one fails. */
  override describe(): string[] {
    const { model: first, modelFallback: second } = this.settings
    return second ? [`Fallback: ${second}, when ${first} fails`] : []
  }

  /** Give the turn both models. */
  override prepare(turn: Turn, options: Options): void {
    const { modelFallback: name, fallbackSeconds } = this.settings
    if (!name) return
    const build = async () => {
      this.model ??= this.#build()
      return wrapModel(this.#before, await this.model, turn.actor, turn)
    }
    adapter.withFallback(options, new Second(turn, name, build, fallbackSeconds))
  }

  async #build(): Promise<LanguageModel> {
    const { buildModel } = await this.load.model()
    return buildModel({ ...this.settings, model: this.settings.modelFallback })
  }
}
