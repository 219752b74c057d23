// Advice for the operator about a failed model call.

import type { AgentError } from '../contract.ts'
import { causesOf, CONTROL } from '../log.ts'
import type { ModelModule, Modules } from '../modules.ts'
import { proxyVariables } from '../settings.ts'

/** Return a failure's reason, with a line of advice if the model failed. */
export async function explain(error: AgentError, load: Modules): Promise<string> {
  const { cause, detail, type } = error
  const why = `(${(messageOf(cause) || detail || type).replace(CONTROL, '')})\n`
  if (type !== 'model_failed') return why
  const advice = advise(await load.model(), detail)
  return advice ? `${why}${detail}: ${advice}.\n` : why
}

/**
 * Return advice for the failure `kind`, as `describe` formats it, or ''.
 *
 * `variable` is the setting with the model's name.
 */
export function advise(model: ModelModule, kind: string, variable = 'MODEL'): string {
  const { ADDRESS, CREDENTIALS } = model
  const proxies = process.env.NODE_USE_ENV_PROXY === '1' ? proxyVariables() : ''
  const network = proxies ? `, ${proxies} and the network` : ' and the network'
  const hints: [RegExp, string][] = [
    [/HTTP 40[13]|Credential/, `check ${CREDENTIALS}`],
    [/HTTP 40[04]/, `check ${variable} and ${ADDRESS}`],
    [/HTTP 429|[Tt]hrottl/, "the provider's limit is reached, retry later"],
    [/Connect|ECONN|ENOTFOUND|EAI_AGAIN/, `check ${ADDRESS}${network}`],
    [/HTTP 5/, 'the provider failed or is overloaded, retry later'],
  ]
  const [, advice = ''] = hints.find(([form]) => form.test(kind)) ?? []
  return advice
}

interface Answer {
  message?: unknown
  error?: Answer
}

/** Return a provider's message without the status that OpenAI's and Anthropic's clients prepend. */
function messageOf(cause: unknown): string {
  if (!(cause instanceof Error)) return ''
  for (const error of causesOf(cause)) {
    const body = (error as { error?: Answer }).error
    const message = body?.error?.message ?? body?.message
    if (typeof message === 'string') return message
  }
  return cause.message
}
