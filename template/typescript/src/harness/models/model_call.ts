// Calls a model for `check --connect`, to test the key, the address and the model's name.

import { advise } from './advice.ts'
import { AgentError } from '../contract.ts'
import { TimeoutError, withinTime } from '../deadline.ts'
import { diagnostic, type Finding } from '../findings.ts'
import { CONTROL, describe } from '../log.ts'
import type { ModelModule, Modules } from '../modules.ts'
import type { CoreSettings } from '../settings.ts'

const SECONDS = 60 // a local server may load the model first
const MAX_TEXT = 300 // characters of the provider's message
// Variables other than CREDENTIALS whose values a provider may quote.
const SECRETS = ['AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN', 'AWS_BEARER_TOKEN_BEDROCK']

/**
 * Call the model `name` until its first text; return findings about a failure.
 *
 * `variable` is the setting with the model's name. The request resembles a turn's: some models
 * reject `max_tokens`, and a list of models does not test the key.
 */
export async function callModel(
  load: Modules,
  settings: CoreSettings,
  variable: string,
  name: string,
): Promise<Finding[]> {
  if (settings.model === 'offline' || !name) return []
  // These load a framework and the vendor's client.
  const module = await load.model()
  const { ask } = await import('./ask.ts')
  const seconds = Math.min(SECONDS, settings.turnTimeoutSeconds)
  const late = new TimeoutError()
  const work = async (stop: AbortSignal) => {
    // Avoid the SDK's warning about models that have no cache.
    const model = module.buildModel({ ...settings, model: name, promptCache: 0 })
    await ask(model, 'Reply with one word.', 'Hello', 0, stop)
  }
  try {
    await withinTime(seconds, new AbortController().signal, work, () => late)
    return []
  } catch (error) {
    const isLate = error === late
    const hang = `no answer within ${seconds} s: check ${module.ADDRESS} and the network`
    const why = isLate ? hang : reason(module, error, variable)
    return [diagnostic(`SET-${variable}`, `Cannot call ${variable}=${name}: ${why}.`)]
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
