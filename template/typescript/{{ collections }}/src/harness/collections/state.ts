// The capability that applies `state` of the agent file: limits the earlier turns a model sees.
//
// The session still stores every turn: `/retry`, `replace_turn` and the page do not change.

import { isDeepStrictEqual } from 'node:util'

import { Capability, type Options } from '../capability.ts'
import type { Turn } from '../contract.ts'
import type { Modules } from '../modules.ts'
import type { CoreSettings } from '../settings.ts'
import { type Form, showOnly } from './adapter.ts'
import { Declarations } from './capability.ts'
import { State } from './models.ts'

const CHARS_PER_TOKEN = 4 // an estimate: only the model's vendor can count tokens
const DEFAULT = State.parse({})

/** Shows the model only the earlier turns that `state` allows. */
export class EarlierTurns extends Capability {
  readonly #declarations: Declarations

  constructor(settings: CoreSettings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    this.#declarations = before.find((capability) => capability instanceof Declarations)!
  }

  override prepare(_turn: Turn, options: Options): void {
    const { state } = this.#declarations.project
    if (isDeepStrictEqual(state, DEFAULT)) return
    showOnly(options, (messages, form) => visible(state, messages, form))
  }
}

/** Return the visible messages of earlier turns, then this turn from the last prompt on. */
function visible<Message>(state: State, messages: readonly Message[], form: Form<Message>) {
  const starts = [...messages.keys()].filter((at) => form.isPrompt(messages[at]!))
  const first = starts[0]
  const last = starts.at(-1)
  if (first === undefined) return [...messages]
  const hidesTools = state.working_state === 'ephemeral' || !state.scratchpad_visible_to_model
  const keepsHistory = state.session_history === 'session'
  let remaining = state.max_state_tokens ?? Infinity
  const earlier: Message[][] = []
  for (const [at, start] of [...starts.entries()].slice(0, -1).reverse()) {
    if (!keepsHistory) break
    const all = messages.slice(start, starts[at + 1])
    const turn = hidesTools ? [all[0]!, form.withoutTools(all.at(-1)!)] : all
    const size = turn.reduce((sum, message) => sum + form.sizeOf(message), 0)
    remaining -= Math.ceil(size / CHARS_PER_TOKEN)
    if (remaining < 0) break
    earlier.unshift(turn)
  }
  return [...messages.slice(0, first), ...earlier.flat(), ...messages.slice(last)]
}
