// The capability that falls back to a second model.

import { Capability, type Options, wrapModel } from '../capability.ts'
import type { Turn } from '../contract.ts'
import { diagnostic, type Finding } from '../findings.ts'
import { callModel } from '../models/model_call.ts'
import type { LanguageModel } from '../echo_model.ts'
import type { Modules } from '../modules.ts'
import type { CoreSettings, SettingsOf } from '../settings.ts'
import * as adapter from './adapter.ts'
import { FallbackSwitch } from './second.ts'
import type { FALLBACK_SETTINGS } from './settings.ts'

type Settings = CoreSettings & SettingsOf<typeof FALLBACK_SETTINGS>

/** Lets MODEL_FALLBACK answer a call that MODEL fails before its first content. */
export class Fallback extends Capability<Settings> {
  /** The fallback model, built on first use. */
  model: Promise<LanguageModel> | undefined
  readonly #before: readonly Capability[]

  constructor(settings: Settings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    this.#before = before
  }

  /** Report settings that leave a turn without a fallback model. */
  override check(): Finding[] {
    const { model: first, modelFallback: second } = this.settings
    if (!second) {
      const hint = 'MODEL_FALLBACK is not set: if MODEL fails, no other model answers.'
      return [diagnostic('SET-MODEL_FALLBACK', hint, 'warning')]
    }
    if (first === 'offline') {
      const hint = 'MODEL_FALLBACK needs MODEL, which is not set. Set both.'
      return [diagnostic('SET-MODEL_FALLBACK', hint)]
    }
    if (first === second) {
      const hint = 'MODEL_FALLBACK is the same model as MODEL. Set a different model.'
      return [diagnostic('SET-MODEL_FALLBACK', hint)]
    }
    const { fallbackSeconds: seconds, turnTimeoutSeconds: limit } = this.settings
    const hint =
      `FALLBACK_SECONDS is ${seconds}, not below TURN_TIMEOUT_SECONDS=${limit}: ` +
      'if MODEL hangs, the turn times out before the fallback.'
    return seconds < limit ? [] : [diagnostic('SET-FALLBACK_SECONDS', hint, 'warning')]
  }

  /** Call the fallback model. */
  override ping(): Promise<Finding[]> {
    const { modelFallback: name } = this.settings
    return callModel(this.load, this.settings, 'MODEL_FALLBACK', name)
  }

  /** Return a line that names the fallback model. */
  override describe(): string[] {
    const { model: first, modelFallback: second } = this.settings
    return second ? [`Fallback: ${second}, when ${first} fails`] : []
  }

  /** Let the second model answer calls of the turn after a temporary failure. */
  override prepare(turn: Turn, options: Options): void {
    const { modelFallback: name, fallbackSeconds } = this.settings
    if (!name) return
    const build = async () => {
      this.model ??= this.#build()
      return wrapModel(this.#before, await this.model, turn.actor, turn)
    }
    adapter.withFallback(options, new FallbackSwitch(turn, name, build, fallbackSeconds))
  }

  async #build(): Promise<LanguageModel> {
    const { buildModel } = await this.load.model()
    return buildModel({ ...this.settings, model: this.settings.modelFallback })
  }
}
