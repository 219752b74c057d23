// A call of a model for `check --connect`: it proves the key, the address and the model's name.

import { advise } from './advice.ts'
import { AgentError } from '../contract.ts'
import { TimeoutError, withinTime } from '../deadline.ts'
import { diagnostic, type Finding } from '../findings.ts'
import { CONTROL, describe } from '../log.ts'
import type { ModelModule, Modules } from '../modules.ts'
import type { CoreSettings } from '../settings.ts'

const SECONDS = 60 // a server of your own may have to load the model
const MAX_TEXT = 300 // characters of the provider's message
// Variables, besides CREDENTIALS, whose values a provider may quote.
const SECRETS = ['AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN', 'AWS_BEARER_TOKEN_BEDROCK']

/**
 * Call the model `name` and end the call at its first text; return why it failed.
 *
 * `variable` is the setting that names the model. The request is like that of a turn: one with
 * `max_tokens` would be refused by some models, and a look at the list of models proves no key.
 */
export async function callModel(
  load: Modules,
  settings: CoreSettings,
  variable: string,
  name: string,
): Promise<Finding[]> {
  if (settings.model === 'offline' || !name) return []
  // These load a framework and the client of the vendor.
  const module = await load.model()
  const { ask } = await import('./ask.ts')
  const seconds = Math.min(SECONDS, settings.turnTimeoutSeconds)
  const late = new TimeoutError()
  const work = async (stop: AbortSignal) => {
    // The SDK warns that some models have no cache.
    const model = module.buildModel({ ...settings, model: name, promptCache: 0 })
    await ask(model, 'Reply with one word.', 'Hello', 0, stop)
  }
  try {
    await withinTime(seconds, new AbortController().signal, work, () => late)
    return []
  } catch (error) {
    const isLate = error === late
    const hang = `no answer within ${seconds} s: look at ${module.ADDRESS} and the network`
    const why = isLate ? hang : reason(module, error, variable)
    return [diagnostic(`SET-${variable}`, `${variable}=${name} cannot be called: ${why}.`)]
  }
}

function reason(model: ModelModule, error: unknown, variable: string): string {
  const kind = error instanceof AgentError ? error.detail : describe(error)
  const advice = advise(model, kind, variable)
  const why = advice ? `${kind}: ${advice}` : kind
  let text = String(Object(error).message).replace(CONTROL, ' ').split(/\s+/).join(' ').trim()
  for (const secret of [model.CREDENTIALS, ...SECRETS]) {
    const value = process.env[secret]
    if (value) text = text.replaceAll(value, '…')
  }
  const hasText = text && kind.includes('HTTP')
  return hasText ? `${why} (${text.slice(0, MAX_TEXT)})` : why
}
