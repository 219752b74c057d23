// Why a call of the model failed, for the operator.

import type { AgentError } from '../contract.ts'
import { causesOf, CONTROL } from '../log.ts'
import type { ModelModule, Modules } from '../modules.ts'
import { proxyVariables } from '../settings.ts'

/** Return why a turn failed, with a line of advice if the model failed. */
export async function explain(error: AgentError, load: Modules): Promise<string> {
  const { cause, detail, type } = error
  const why = `(${(messageOf(cause) || detail || type).replace(CONTROL, '')})\n`
  if (type !== 'model_failed') return why
  const advice = advise(await load.model(), detail)
  return advice ? `${why}${detail}: ${advice}.\n` : why
}

/**
 * Return advice for a failure, as `describe` names it, or ''.
 *
 * `variable` is the setting that names the model.
 */
export function advise(model: ModelModule, kind: string, variable = 'MODEL'): string {
  const { ADDRESS, CREDENTIALS } = model
  const proxies = process.env.NODE_USE_ENV_PROXY === '1' ? proxyVariables() : ''
  const network = proxies ? `, ${proxies} and the network` : ' and the network'
  const hints: [RegExp, string][] = [
    [/HTTP 40[13]|Credential/, `look at ${CREDENTIALS}`],
    [/HTTP 40[04]/, `look at ${variable} and ${ADDRESS}`],
    [/HTTP 429|[Tt]hrottl/, "the provider's limit is reached, try again later"],
    [/Connect|ECONN|ENOTFOUND|EAI_AGAIN/, `look at ${ADDRESS}${network}`],
    [/HTTP 5/, 'the provider failed or is overloaded, try again later'],
  ]
  const [, advice = ''] = hints.find(([form]) => form.test(kind)) ?? []
  return advice
}

interface Answer {
  message?: unknown
  error?: Answer
}

/** Return a provider's message; the client of OpenAI or Anthropic puts the status in front. */
function messageOf(cause: unknown): string {
  if (!(cause instanceof Error)) return ''
  for (const error of causesOf(cause)) {
    const body = (error as { error?: Answer }).error
    const message = body?.error?.message ?? body?.message
    if (typeof message === 'string') return message
  }
  return cause.message
}
